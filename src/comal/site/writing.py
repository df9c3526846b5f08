"""A static folder that shows archives on a map, with any server for files."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from comal import strictjson
from comal.errors import (
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    UnsafeContentError,
    shown_path,
    translated,
)
from comal.progress import Progress, silent
from comal.storage import check_several, href_text
from comal.storage.config import StorageConfig
from comal.storage.location import stored
from comal.storage.targetlock import Owns
from comal.storage.targets import Kind, check_ending, new_folder, target_path

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
# A service worker controls only paths below its own, so it is at the root.
_WORKER: Final = "assets/sw.js"


class Asset(NamedTuple):
    """One file of a page."""

    content_type: str
    path: Path


def viewer_files() -> Mapping[str, Asset]:
    """The files of a server's viewer, by path below the page.

    Returns
    -------
    Mapping
        Modules and styles under ``assets/``, third-party libraries under ``vendor/``; without the
        service worker, which only a static site has.
    """
    return {name: asset for name, asset in _found() if name != _WORKER}


def site_files() -> Mapping[str, Asset]:
    """The files of a static site, by path below its folder, without `site.json`."""
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
# Documents below ``tiles/`` that belong to no source.
_TAKEN: Final = frozenset({"sources", "colormaps"})
_ORIGIN = re.compile(r"([A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?")
# Query parameters of signed URLs (S3, Google, Azure, CloudFront) and of tokens.
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
        Its name in URLs: lower-case letters, digits, ``-`` and ``_``; derived from `href` if
        absent.
    title
        Its title for people; the name in its metadata if absent.
    attribution
        Attribution as plain text; that of its metadata if absent.
    kind
        ``"tapalcatl"`` or ``"raquet"``; found by the suffix or the first bytes if absent.
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
    """Its URL, if it is remote."""
    path: Path | None = None
    """The file to open, if it is local."""
    files: tuple[Path, ...] = field(default=(), repr=False)
    """Everything that belongs to it, below the folder of `path`."""

    def entry(self, href: str) -> dict[str, Any]:
        """Its entry in ``site.json``."""
        given = self.source
        optional = {"title": given.title, "attribution": given.attribution}
        entry: dict[str, Any] = {"name": self.name, "kind": self.kind, "href": href}
        entry.update({key: value for key, value in optional.items() if value})
        if given.absent:
            entry["absent"] = list(given.absent)
        return entry


def placed(sources: Iterable[str | os.PathLike[str] | SiteSource]) -> list[Placed]:
    """Find the kind, the files and a unique name of each source."""
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
                "the address cannot be put on a public page",
                where=source.name or "source",
                expected="a host, perhaps a port, and no password",
            )
        if _SIGNED.search(parts.query):
            raise InvalidInputError(
                "a signed address cannot be put on a public page",
                where=href,
                hint="make the object public, or give a local copy",
            )
        url = f"{href}{_META}" if parts.path.endswith("/") else href
        kind = _kind_of(source, Path(urlsplit(url).path), b"", href)
        return Placed(source, kind, source.name or _stem(parts.path), url=url)
    if parts is not None and parts.scheme != "file":
        raise InvalidInputError(
            "a browser cannot read the source",
            where=href,
            expected="a local path, or an address that begins with https://",
            hint="give the address under which the store serves it over https",
        )
    return _local(source, Path(parts.path if parts else href))


def _local(source: SiteSource, given: Path) -> Placed:
    path = given / _META if given.is_dir() else given
    if not path.is_file():
        raise ObjectNotFoundError("there is no such source", where=shown_path(path))
    with path.open("rb") as file:
        kind = _kind_of(source, path, file.read(4), shown_path(path))
    files = (path, *(_archives(path) if path.suffix == ".json" else ()))
    stem = path.parent.resolve().name if path.name == _META else path.stem
    return Placed(source, kind, source.name or _slug(stem), path=path, files=files)


def _archives(meta: Path) -> Iterator[Path]:
    """The archives of a tileset below the folder of its document; none if they are remote."""
    where = shown_path(meta)
    template = strictjson.loads(meta.read_bytes(), where).get("source")
    if not isinstance(template, str) or not all(part in template for part in ("{z}", "{x}", "{y}")):
        raise InvalidInputError(
            "the tileset's source is not a template", where=where, expected="{z}, {x} and {y} in it"
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


def _kind_of(source: SiteSource, path: Path, head: bytes, where: str) -> str:
    """The given kind, else the one of the suffix or the first bytes."""
    kind = source.kind or _SUFFIXES.get(path.suffix.lower()) or _MAGIC.get(head)
    if kind is None:
        raise InvalidInputError(
            "cannot tell what the source is",
            where=where,
            expected="a tileset's folder or meta.json, an archive (.zip), or RaQuet (.parquet)",
        )
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
            "the name cannot be part of an address",
            where=place.name,
            expected="lower-case letters, digits, - and _",
        )
    if place.name not in taken:
        return place
    if place.source.name in _TAKEN:
        raise InvalidInputError("the page uses this name itself", where=place.name)
    if place.source.name is not None:
        raise InvalidInputError("two sources have the same name", where=place.name)
    number = next(n for n in range(2, len(taken) + 3) if f"{place.name}-{n}" not in taken)
    return replace(place, name=f"{place.name}-{number}")


_CONFIG = "site.json"
_DATA = "data"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'{origins}; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
"""The Content-Security-Policy of the page; allows its own host and those of remote sources."""


def write(
    out: str | os.PathLike[str],
    sources: Iterable[str | os.PathLike[str] | SiteSource] = (),
    *,
    title: str = "Tiles",
    link: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
    config: StorageConfig | None = None,
) -> Path:
    """Write a folder with a page that reads Tapalcatl 2 and RaQuet by range requests.

    Any static host or bucket that answers byte ranges can serve it. The page's service worker
    cuts tiles out of the archives, so that any map library can request
    ``tiles/{source}/{z}/{x}/{y}.{ext}``.

    Parameters
    ----------
    out
        The folder.
    sources
        Tilesets (folder, ``meta.json`` or one ``.zip``) and RaQuet files; see `SiteSource`.
        Remote ones stay where they are; their store must allow the page's origin (CORS).
    title
        Heading of the page.
    link
        Refer to local sources by their path relative to `out` instead of copying them. The web
        server must then serve both.
    overwrite
        Replace an older site, which must hold no other file.
    progress
        Called with the number of files that are written.
    config
        Settings and credentials to write with, where `out` is in a store.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    ConflictError
        `out` exists, or is not a site that can be replaced.
    InvalidInputError, ObjectNotFoundError, UnsafeContentError
        A source that a browser cannot read, or that does not exist.
    StorageError
        The disk is full or fails.
    """
    target = target_path(out, config)
    check_ending(target)
    places = placed(sources)
    entries = []
    total = sum(len(place.files) for place in places if not link) + len(site_files())
    with new_folder(target, overwrite, SITE, [place.path for place in places]) as folder:
        done = 0
        for name, asset in site_files().items():
            _copy(asset.path, folder / name)
            done += 1
        progress(done, total, "writing the page")
        for place in places:
            if place.path is not None and not link:
                for file in place.files:
                    _copy(file, folder / _DATA / place.name / _relative(place, file))
                    done += 1
                    progress(done, total, f"copying {place.name}")
            entries.append(place.entry(_href(place, target, link=link)))
        _write_config(folder, title, entries)
        _make_page(folder / "index.html", entries)
    return target


def _claim(path: Path) -> Owns | None:
    """The files of a site: page, configuration and copied sources; None for another folder."""
    if not (path / _CONFIG).is_file() or not (path / "index.html").is_file():
        return None
    own = {_CONFIG, *site_files()}
    for entry in json.loads((path / _CONFIG).read_bytes())["sources"]:
        copied = path / unquote(entry["href"])
        if entry["href"].startswith(f"{_DATA}/") and copied.is_file():
            (place,) = placed([SiteSource(href=copied, kind=entry["kind"], name=entry["name"])])
            own.update(file.relative_to(path).as_posix() for file in place.files)
    return own.__contains__


SITE: Final = Kind("a site of comal", _claim)


def _relative(place: Placed, file: Path) -> Path:
    assert place.path is not None
    return file.relative_to(place.path.parent)


def _href(place: Placed, target: Path, *, link: bool) -> str:
    if place.path is None:
        assert place.url is not None
        return place.url
    if not link:
        return quote(f"{_DATA}/{place.name}/{place.path.name}")
    if stored(target) is not None:
        raise InvalidInputError(
            "a page in a store cannot refer to a file of this machine",
            where=shown_path(place.path),
            hint="leave out link, or name the archive by its URL",
        )
    relative = os.path.relpath(place.path.resolve(), target.resolve())
    return quote(Path(relative).as_posix())


def _copy(source: Path, target: Path) -> None:
    with translated({OSError: StorageError}, "cannot copy a file", where=shown_path(source)):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _write_config(folder: Path, title: str, entries: list[dict[str, Any]]) -> None:
    if len(title) > 200:
        raise InvalidInputError(
            "the title is too long", where="title", expected="at most 200 characters"
        )
    document = {"title": title, "sources": entries}
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    with translated({OSError: StorageError}, "cannot write", where=_CONFIG):
        (folder / _CONFIG).write_text(text, encoding="utf-8")


def _make_page(page: Path, entries: list[dict[str, Any]]) -> None:
    """Turn the server's page into that of a site, which may only request its own remote sources."""
    remote = [urlsplit(entry["href"]) for entry in entries if "://" in entry["href"]]
    origins = sorted({f" {part.scheme}://{part.netloc}" for part in remote})
    policy = _POLICY.format(origins="".join(origins))
    text = page.read_text(encoding="utf-8")
    for old, new in {
        "<html ": "<html data-site ",
        '"_/': '"',
        "<title>": '<meta name="referrer" content="no-referrer">\n    <title>',
        '<meta charset="utf-8">': '<meta charset="utf-8">\n    '
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
    }.items():
        text = text.replace(old, new)
    page.write_text(text, encoding="utf-8")
