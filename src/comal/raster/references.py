"""What a VRT leads to: other files of this machine, and of the network only what is allowed.

GDAL opens the sources of a VRT by itself, resolves their names and follows their redirects. So
nothing that is elsewhere is opened unless `StorageConfig.linked_origins` names its origin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs
from xml.etree import ElementTree as ET

from comal.errors import (
    AccessDeniedError,
    InvalidInputError,
    InvalidMetadataError,
    reason_of,
    shown,
)
from comal.limits import MIB
from comal.storage.config import default_config
from comal.storage.location import FILE, parse_href

_LARGEST = 64 * MIB
_DEEPEST = 8
_STORES = {"s3": "s3", "gs": "gs", "az": "az", "adls": "az"}
# File systems of GDAL that ask the network, alone or around others: /vsizip//vsicurl/https://...
_VSI = re.compile(
    r"/vsi(curl|s3|gs|az|adls|oss|swift|hdfs|webhdfs)(_streaming)?([/?].*)", re.DOTALL
)
_URL = re.compile(r"(?:https?|ftp)://\S+", re.IGNORECASE)
# Descriptions of services, which GDAL takes for the name of a file.
_SERVICE = re.compile(r"\s*<|[A-Z][A-Z0-9_]{2,}:(?!//)", re.ASCII)
_LOCAL = (
    "NETCDF:",
    "HDF5:",
    "HDF4_EOS:",
    "HDF4_SDS:",
    "GTIFF_DIR:",
    "GTIFF_RAW:",
    "GPKG:",
)


def check_references(path: Path, depth: int = 0) -> None:
    """Refuse a VRT, or one that it leads to, with sources that may not be opened.

    Raises
    ------
    AccessDeniedError
        A source is elsewhere, and its origin is not named in ``linked_origins``.
    InvalidMetadataError
        It cannot be read as XML, or leads to itself.
    """
    where = str(path)
    for text in _references(path, where):
        found = _VSI.search(text)
        url = _URL.search(text)
        if found is not None or url is not None:
            _check_elsewhere(_named(found, url), where)
        elif _SERVICE.match(text) and not text.startswith(_LOCAL):
            raise _refused(where, text.strip())
        else:
            _check_nested(path.parent / text, where, depth)


def _references(path: Path, where: str) -> Iterator[str]:
    """All texts that may name a file: of a source, or such as begin like a place elsewhere."""
    if path.stat().st_size > _LARGEST:
        raise InvalidMetadataError("not a VRT", where=where, found="a file of more than 64 MiB")
    try:
        root = ET.fromstring(path.read_bytes())  # noqa: S314 - expat bounds its entities
    except (ET.ParseError, ValueError) as error:
        raise InvalidMetadataError(
            "raster cannot be read", where=where, found=reason_of(error)
        ) from error
    for element in root.iter():
        kind = (element.tag + element.get("name", "")).lower()
        names = kind.startswith("source") or "filename" in kind or kind.endswith("dataset")
        text = (element.text or "").strip()
        if (text and names and kind != "sourceband" and not len(element)) or _VSI.match(text):
            yield text


def _named(found: re.Match[str] | None, url: re.Match[str] | None) -> str:
    if found is None or (url is not None and found[1] == "curl" and found[3].startswith("/")):
        assert url is not None, "one of them is there"
        return url[0]
    rest = found[3]
    if found[1] == "curl":
        return str(parse_qs(rest[1:]).get("url", [""])[0])
    scheme = _STORES.get(found[1])
    return f"{scheme}:/{rest}" if scheme else found[0]


def _check_elsewhere(href: str, where: str) -> None:
    try:
        location = parse_href(href)
    except InvalidInputError as error:
        raise _refused(where, href) from error
    if location.scheme == FILE:
        raise _refused(where, href)
    if default_config().linked(location) is None:
        raise _refused(where, location.label, location.origin)


def _refused(where: str, found: str, origin: str = "its origin") -> AccessDeniedError:
    return AccessDeniedError(
        "a VRT leads away from this machine",
        where=where,
        found=shown(found),
        hint=f"name {origin} in linked_origins (COMAL_LINKED_ORIGINS) if that is meant",
    )


def _check_nested(path: Path, where: str, depth: int) -> None:
    """A source that is a VRT itself, whatever its name."""
    try:
        with path.open("rb") as file:
            nested = file.read(512).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<VRTDataset")
    except (OSError, ValueError):
        return  # GDAL says what is wrong with it
    if nested:
        if depth >= _DEEPEST:
            raise InvalidMetadataError("VRTs are nested too deep", where=where)
        check_references(path, depth + 1)
