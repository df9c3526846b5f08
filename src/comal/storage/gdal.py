"""GDAL paths of locations, and of spans (``/vsisubfile/{offset}_{size},{path}``)."""

from __future__ import annotations

import re
from typing import Any

from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.lazy import pc
from comal.storage.location import HTTP_SCHEMES, Location

_PREFIXES = {"s3": "/vsis3/", "gs": "/vsigs/", "az": "/vsiaz/"}


def vsi_path(location: Location) -> str:
    """The GDAL path of a location, without its secrets: user, password and query.

    Raises
    ------
    InvalidInputError
        For locations without a GDAL path: objects in memory, and local paths that GDAL would take
        for one of its own file systems.
    """
    if location.is_local:
        # GDAL would read '/vsizip/...' inside an archive, never as a folder of that name.
        if location.path.startswith("/vsi"):
            raise InvalidInputError("GDAL cannot open a path below '/vsi'", where=location.label)
        return location.path
    if location.scheme in HTTP_SCHEMES:
        return f"/vsicurl/{location.href}"
    if location.scheme in _PREFIXES:
        # An Azure root may name the account too; GDAL takes that from its own configuration.
        container = location.root.partition("@")[0]
        return f"{_PREFIXES[location.scheme]}{container}/{location.path}"
    raise InvalidInputError(f"GDAL cannot open {location.scheme}:// objects", where=location.label)


_SUBFILE = re.compile(r"/vsisubfile/(\d+)_(\d+),(.*)", re.DOTALL)


def subfile_one(vsi_path: str, offset: int, size: int) -> str:
    """The GDAL path of `size` bytes at `offset` in the file `vsi_path`.

    A `vsi_path` that is a span itself is resolved, because GDAL does not nest them.

    Raises
    ------
    InvalidInputError
        When `vsi_path` is a relative path, whose meaning would change with the folder.
    InvalidMetadataError
        When the span exceeds the file.
    """
    path, start, limit = _resolved(vsi_path)
    if offset < 0 or size < 0 or (limit is not None and offset + size > limit):
        raise _outside(vsi_path, f"{offset}+{size}", limit)
    return f"/vsisubfile/{start + offset}_{size},{path}"


def subfile(vsi_path: str, offsets: Any, sizes: Any) -> Any:
    """As `subfile_one` for arrays.

    Parameters
    ----------
    vsi_path
        GDAL path of the file that holds all spans.
    offsets, sizes
        Integer arrays (Arrow, chunked or not) of equal length. A null in either gives a null.

    Returns
    -------
    pyarrow.Array or pyarrow.ChunkedArray
        Strings.
    """
    # Opening a file does not need it.
    import pyarrow as pa  # noqa: PLC0415

    path, start, limit = _resolved(vsi_path)
    offsets, sizes = pc.cast(offsets, pa.int64()), pc.cast(sizes, pa.int64())
    _check_spans(vsi_path, offsets, sizes, limit)
    if start:
        offsets = pc.add_checked(offsets, pa.scalar(start, pa.int64()))
    span = pc.binary_join_element_wise(
        pc.cast(offsets, pa.string()), pc.cast(sizes, pa.string()), "_"
    )
    return pc.binary_join_element_wise("/vsisubfile/", span, "," + path, "")


def _resolved(vsi_path: str) -> tuple[str, int, int | None]:
    match = _SUBFILE.fullmatch(vsi_path)
    if match:
        return match[3], int(match[1]), int(match[2])
    if not vsi_path.startswith("/"):
        raise InvalidInputError(
            "a GDAL path must be absolute", where="vsi_path", found=shown(vsi_path)
        )
    return vsi_path, 0, None


def _check_spans(vsi_path: str, offsets: Any, sizes: Any, limit: int | None) -> None:
    if not len(offsets):
        return
    smallest = pc.min(offsets).as_py(), pc.min(sizes).as_py()
    if any(value is not None and value < 0 for value in smallest):
        raise _outside(vsi_path, "a negative offset or size", limit)
    if limit is not None:
        largest = pc.max(pc.add_checked(offsets, sizes)).as_py()
        if largest is not None and largest > limit:
            raise _outside(vsi_path, f"a span that ends at {largest}", limit)


def _outside(vsi_path: str, found: str, limit: int | None) -> InvalidMetadataError:
    return InvalidMetadataError(
        "the span lies outside its file",
        where=shown(vsi_path, 120),
        found=found,
        expected="offset and size of 0 or more" + (f", an end of at most {limit}" if limit else ""),
    )
