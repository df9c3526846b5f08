"""A static folder that shows archives on a map, with no server but one for files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from comal.errors import InvalidInputError, StorageError, translated
from comal.progress import Progress, silent
from comal.site.sources import Placed, SiteSource, placed, site_files
from comal.storage.kinds import Kind, check_ending
from comal.storage.location import shown_path
from comal.storage.targetlock import Owns
from comal.storage.targets import local_path, new_folder

_CONFIG = "site.json"
_DATA = "data"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'{origins}; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
"""The Content-Security-Policy of the page; its own host and those of remote sources answer it."""


def write(
    out: str | os.PathLike[str],
    sources: Iterable[str | os.PathLike[str] | SiteSource] = (),
    *,
    title: str = "Tiles",
    link: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Path:
    """Write a folder with a page that reads Tapalcatl 2 and RaQuet by range requests.

    Any static host or bucket that answers byte ranges can serve it. The page's service worker
    cuts tiles out of the archives, so that any map library may ask it for
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
        Name local sources by their place relative to `out`, instead of copying them into it. The
        web server must then serve both.
    overwrite
        Replace an older site, which must hold no other file.
    progress
        Told how many of the files are written.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    ConflictError
        `out` exists, or is no site that can be replaced.
    InvalidInputError, ObjectNotFoundError, UnsafeContentError
        A source that a browser cannot read, or that is not there.
    StorageError
        The disk is full or fails.
    """
    target = local_path(out)
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
    """The page's files, its configuration, and the sources that were copied."""
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
    relative = os.path.relpath(place.path.resolve(), target.resolve())
    return quote(Path(relative).as_posix())


def _copy(source: Path, target: Path) -> None:
    with translated({OSError: StorageError}, "cannot copy a file", where=shown_path(source)):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def _write_config(folder: Path, title: str, entries: list[dict[str, Any]]) -> None:
    if len(title) > 200:
        raise InvalidInputError("the title is too long", where="title", expected="200 characters")
    document = {"title": title, "sources": entries}
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    with translated({OSError: StorageError}, "cannot write", where=_CONFIG):
        (folder / _CONFIG).write_text(text, encoding="utf-8")


def _make_page(page: Path, entries: list[dict[str, Any]]) -> None:
    """Make the server's page that of a site, which may reach its remote sources and no others."""
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
