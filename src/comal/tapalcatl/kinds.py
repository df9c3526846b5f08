"""What Tapalcatl writes, and how an earlier one is told from other files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from comal.storage.kinds import Kind, file_kind, magic_kind
from comal.storage.targetlock import Owns
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.spec import META
from comal.tapalcatl.wire import parse_name

_FIELD = re.compile(r"\{([^{}]*)\}")
_DIGITS = "(?:0|[1-9][0-9]{0,9})"
_HASH = "[0-9a-f]{5}"
_TAIL = 22 + 65_535
"""The end record of a ZIP and its comment."""
_HEADER, _LENGTH = 30, 26


def _template(text: str, values: Mapping[str, str]) -> re.Pattern[str]:
    """What paths of archives look like."""
    fields = {"z": _DIGITS, "x": _DIGITS, "y": _DIGITS, "h": _HASH, "hash": _HASH}
    parts = _FIELD.split("/".join(part for part in text.split("/") if part not in ("", ".")))
    pieces = [
        fields.get(part, re.escape(values.get(part, ""))) if at % 2 else re.escape(part)
        for at, part in enumerate(parts)
    ]
    return re.compile("/".join(part for part in "".join(pieces).split("/") if part))


def _claim_tree(path: Path) -> Owns | None:
    """``meta.json``, and archives where its template has them."""
    if not (path / META).is_file() or DOCUMENT.claim(path / META) is None:
        return None
    source = json.loads((path / META).read_bytes()).get("source")
    if not isinstance(source, str) or "://" in source or source.startswith("/"):
        return META.__eq__
    fits = _template(source, {}).fullmatch
    return lambda name: name == META or fits(name) is not None


def _is_document(file: BinaryIO) -> bool:
    # Documents of 2018 have no version; the template of the archives tells them.
    document = json.load(file)
    return isinstance(document, dict) and ("tapalcatl" in document or "source" in document)


def _is_tilejson(file: BinaryIO) -> bool:
    document = json.load(file)
    return isinstance(document, dict) and "tiles" in document


_TILEJSON = re.compile(r"tilejson/[0-9A-Za-z_+-]+\.json")
_TILEJSON_KIND = file_kind("TileJSON", _is_tilejson)


def first_generation(layout: Generation1) -> Kind:
    """Trees of Tapalcatl 1 that are laid out like this one."""
    values = {"prefix": layout.prefix.strip("/"), "layer": layout.layer.strip("/"), "fmt": "zip"}
    fits = _template(layout.pattern, values).fullmatch

    def claim(path: Path) -> Owns | None:
        def owns(name: str) -> bool:
            return fits(name) is not None or (
                _TILEJSON.fullmatch(name) is not None
                and _TILEJSON_KIND.claim(path / name) is not None
            )

        names = (one.relative_to(path).as_posix() for one in path.rglob("*.zip"))
        return owns if any(fits(name) for name in names) else None

    return Kind(f"a tileset of Tapalcatl 1 with the layout {layout.pattern}", claim)


def tree_kind(version: int, layout: Generation1 | None) -> Kind:
    """Trees of a version; of Tapalcatl 1 with a layout."""
    return TREE if version == 2 else first_generation(layout or Generation1())


def _is_archive(file: BinaryIO) -> bool:
    head = file.read(1024)
    size = file.seek(0, 2)
    file.seek(max(0, size - _TAIL))
    tail = file.read()
    end = tail.rfind(b"PK\5\6")
    if end < 0:
        return False
    if b'"tapalcatl"' in tail[end:]:
        return True
    length = int.from_bytes(head[_LENGTH : _LENGTH + 2], "little")
    name = head[_HEADER : _HEADER + length]
    return head.startswith(b"PK\3\4") and parse_name(name.decode("utf-8", "replace")) is not None


DOCUMENT: Final = file_kind(f"a {META} of Tapalcatl", _is_document)
TREE: Final = Kind("a tileset of Tapalcatl 2", _claim_tree)
ARCHIVE: Final = file_kind("an archive of Tapalcatl", _is_archive)
PMTILES: Final = magic_kind("a PMTiles file", b"PMTiles")
