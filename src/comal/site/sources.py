"""Which files the web pages are made of, and of which type each is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from comal import strictjson
from comal.errors import InvalidInputError, ObjectNotFoundError, UnsafeContentError
from comal.storage import check_several, href_text
from comal.storage.location import shown_path

ROOM: Final = Path(__file__).resolve().parent

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
PAGE: Final = "assets/viewer/index.html"
"""The page, which a server and a static site share."""
# A service worker reaches only what is below its own address, so that it stands at the root.
_WORKER: Final = "assets/sw.js"


class Asset(NamedTuple):
    """One file of a page."""

    content_type: str
    path: Path


def viewer_files() -> Mapping[str, Asset]:
    """What a server's viewer is made of, by path below the page.

    Returns
    -------
    Mapping
        Modules and styles under ``assets/``, libraries of others under ``vendor/``. The service
        worker, which only a static site has, is not among them.
    """
    return {name: asset for name, asset in _found() if name != _WORKER}


def site_files() -> Mapping[str, Asset]:
    """What a static site is made of, by path below its folder; `site.json` is not among them."""
    roots = {PAGE: "index.html", _WORKER: "sw.js"}
    return {roots.get(name, name): asset for name, asset in _found()}


def _found() -> Iterator[tuple[str, Asset]]:
    for folder in ("assets", "vendor"):
        for path in sorted((ROOM / folder).rglob("*")):
            if path.suffix in _TYPES and path.is_file():
                yield path.relative_to(ROOM).as_posix(), Asset(_TYPES[path.suffix], path)


TAPALCATL: Final = "tapalcatl"
RAQUET: Final = "raquet"
_META: Final = "meta.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
# Documents below ``tiles/`` that are of no source.
_TAKEN: Final = frozenset({"sources", "colormaps"})
_ORIGIN = re.compile(r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?")
# What signed addresses of S3, Google, Azure and CloudFront, and tokens, are called in a query.
_SIGNED = re.compile(
    r"(?:^|&)(?:x-(?:amz|goog)-|sig=|signature=|token=|key-pair-id=)", re.IGNORECASE
)
_SUFFIXES: Final = {".json": TAPALCATL, ".zip": TAPALCATL, ".parquet": RAQUET}
_MAGIC: Final = {b"PK\x03\x04": TAPALCATL, b"PK\x05\x06": TAPALCATL, b"PAR1": RAQUET}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSource:
    """One source of a static site.

    Attributes
    ----------
    href
        A tileset's folder or ``meta.json``, one archive (``.zip``), or a RaQuet file; a local
        path or an ``http(s)://`` URL.
    name
        What it is called in addresses: lower-case letters, digits, ``-`` and ``_``; made of
        `href` if absent.
    title
        What people read; the name in its metadata if absent.
    attribution
        Whom to thank, as plain text; that of its metadata if absent.
    kind
        ``"tapalcatl"`` or ``"raquet"``; told by the ending or the first bytes if absent.
    absent
        Statuses of the store, besides 404 and 410, that mean that an archive does not exist. Some
        stores answer 403 for that.
    """

    href: str | os.PathLike[str]
    name: str | None = None
    title: str | None = None
    attribution: str | None = None
    kind: str | None = None
    absent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """A source whose files are known."""

    source: SiteSource
    kind: str
    name: str
    url: str | None = None
    """Its address, when it is remote."""
    path: Path | None = None
    """The file that opens it, when it is local."""
    files: tuple[Path, ...] = field(default=(), repr=False)
    """Everything that belongs to it, below the folder of `path`."""

    def entry(self, href: str) -> dict[str, Any]:
        """How ``site.json`` names it."""
        given = self.source
        optional = {"title": given.title, "attribution": given.attribution}
        entry: dict[str, Any] = {"name": self.name, "kind": self.kind, "href": href}
        entry.update({key: value for key, value in optional.items() if value})
        if given.absent:
            entry["absent"] = list(given.absent)
        return entry


def placed(sources: Iterable[str | os.PathLike[str] | SiteSource]) -> list[Placed]:
    """Find out what each source is and which files it has; no two have one name.

    Raises
    ------
    InvalidInputError
        A source that a browser cannot read, a name that cannot stand in an address, or the same
        name twice.
    ObjectNotFoundError
        A local source that is not there.
    """
    check_several(sources, "paths, URLs or SiteSource")
    found: list[Placed] = []
    for given in sources:
        source = given if isinstance(given, SiteSource) else SiteSource(href=given)
        found.append(_named(_place(source), {*_TAKEN, *(other.name for other in found)}))
    return found


def _place(source: SiteSource) -> Placed:
    href = href_text(source.href)
    parts = urlsplit(href) if "://" in href else None
    if parts is not None and parts.scheme in ("http", "https"):
        if not _ORIGIN.fullmatch(parts.netloc):
            raise InvalidInputError(
                "the address cannot stand in a public page",
                where=source.name or "source",
                expected="a host, perhaps a port, and no password",
            )
        if _SIGNED.search(parts.query):
            raise InvalidInputError(
                "a signed address cannot stand in a public page",
                where=href,
                hint="make the object public, or give a local copy",
            )
        url = f"{href}{_META}" if parts.path.endswith("/") else href
        kind = source.kind or _kind_of(Path(urlsplit(url).path), b"", href)
        return Placed(source, _known(kind, href), source.name or _stem(parts.path), url=url)
    if parts is not None and parts.scheme != "file":
        raise InvalidInputError(
            "a browser cannot read it",
            where=href,
            expected="a local path, or an address that begins with https://",
            hint="give the address under which the store serves it over https",
        )
    return _local(source, Path(parts.path if parts else href))


def _local(source: SiteSource, given: Path) -> Placed:
    path = given / _META if given.is_dir() else given
    if not path.is_file():
        raise ObjectNotFoundError("there is no source", where=shown_path(path))
    with path.open("rb") as file:
        kind = source.kind or _kind_of(path, file.read(4), shown_path(path))
    files = (path, *(_archives(path) if path.suffix == ".json" else ()))
    stem = path.parent.resolve().name if path.name == _META else path.stem
    return Placed(
        source, _known(kind, shown_path(path)), source.name or _slug(stem), path=path, files=files
    )


def _archives(meta: Path) -> Iterator[Path]:
    """The archives of a tileset that are beside its document; none when they are elsewhere."""
    where = shown_path(meta)
    template = strictjson.loads(meta.read_bytes(), where).get("source")
    if not isinstance(template, str) or not all(part in template for part in ("{z}", "{x}", "{y}")):
        raise InvalidInputError(
            "the tileset's source is no template", where=where, expected="{z}, {x} and {y} in it"
        )
    scheme = urlsplit(template).scheme
    if scheme in ("http", "https"):
        return
    relative = template.removeprefix("./")
    if scheme or relative.startswith("/") or "\\" in relative:
        raise InvalidInputError(
            "a browser cannot read the archives",
            where=where,
            found=f"source {template!r}",
            expected="a source that is relative or begins with https://",
        )
    if ".." in relative.split("/"):
        raise UnsafeContentError("the tileset's source leaves its folder", where=where)
    pattern = re.escape(relative)
    for key, digits in (("z", r"\d+"), ("x", r"\d+"), ("y", r"\d+"), ("h", "[0-9a-f]{5}")):
        pattern = pattern.replace(re.escape(f"{{{key}}}"), digits)
    fits = re.compile(pattern).fullmatch
    for path in sorted(meta.parent.rglob("*")):
        if fits(path.relative_to(meta.parent).as_posix()) and path.is_file():
            yield path


def _kind_of(path: Path, head: bytes, where: str) -> str:
    kind = _SUFFIXES.get(path.suffix.lower()) or _MAGIC.get(head)
    if kind is None:
        raise InvalidInputError(
            "cannot tell what the source is",
            where=where,
            expected="a tileset's folder or meta.json, an archive (.zip), or RaQuet (.parquet)",
        )
    return kind


def _known(kind: str, where: str) -> str:
    if kind not in (TAPALCATL, RAQUET):
        raise InvalidInputError(
            "unknown kind of source", where=where, found=kind, expected="tapalcatl or raquet"
        )
    return kind


def _stem(path: str) -> str:
    parts = [part for part in path.split("/") if part and part != _META]
    return _slug(Path(parts[-1]).stem if parts else "tiles")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:64] or "tiles"


def _named(place: Placed, taken: set[str]) -> Placed:
    if not _NAME.fullmatch(place.name):
        raise InvalidInputError(
            "the name cannot stand in an address",
            where=place.name,
            expected="lower-case letters, digits, - and _",
        )
    if place.name not in taken:
        return place
    if place.source.name in _TAKEN:
        raise InvalidInputError("the page needs the name for itself", where=place.name)
    if place.source.name is not None:
        raise InvalidInputError("two sources have one name", where=place.name)
    number = next(n for n in range(2, len(taken) + 3) if f"{place.name}-{n}" not in taken)
    return replace(place, name=f"{place.name}-{number}")
