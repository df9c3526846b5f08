"""Paths by which GDAL opens what a location names."""

from __future__ import annotations

from comal.errors import InvalidInputError
from comal.storage.location import FILE, HTTP_SCHEMES, Location

_PREFIXES = {"s3": "/vsis3/", "gs": "/vsigs/", "az": "/vsiaz/"}


def vsi_path(location: Location) -> str:
    """The GDAL path of a location, without its secrets: user, password and query.

    Raises
    ------
    InvalidInputError
        For what GDAL has no path to: objects in memory, and local paths that GDAL would take for
        one of its own file systems.
    """
    if location.scheme == FILE:
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
