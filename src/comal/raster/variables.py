"""Variables of files that hold several rasters: NetCDF, HDF5 and Zarr.

They are named as GDAL names them, ``NETCDF:"path":variable``, or by the path of the file and a
variable beside it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comal.errors import InvalidInputError, shown
from comal.raster.opening import head_of
from comal.storage.location import parse_href

_NAMED = re.compile(r'(NETCDF|HDF5|ZARR):(?:"([^"]+)"|([^"]+?))(?::([^":]*))?', re.IGNORECASE)
_KINDS = ((b"CDF", ("NETCDF",)), (b"\x89HDF", ("NETCDF", "HDF5")))
_DRIVERS = {"NETCDF": "netCDF", "HDF5": "HDF5Image", "ZARR": "Zarr"}
CONTAINERS = ["netCDF", "HDF5", "Zarr"]
"""Drivers that say which variables a file holds."""
_BEFORE = {"NETCDF": "", "HDF5": "//", "ZARR": "/"}
"""What GDAL wants before the name of a variable."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A raster in a file of several."""

    path: str
    kinds: tuple[str, ...]
    """What the file may be, the likeliest first."""
    name: str | None
    """None for the only one."""

    def openings(self) -> list[tuple[str, str]]:
        """What GDAL may open, each with its driver."""
        return [
            (f'{kind}:"{self.path}"' + self._named(kind), _DRIVERS[kind]) for kind in self.kinds
        ]

    def _named(self, kind: str) -> str:
        return f":{_BEFORE[kind]}{self.name.lstrip('/')}" if self.name else ""


def file_of(source: Any) -> Any:
    """The file that a source names; the source itself where it is no variable of one."""
    found = _NAMED.fullmatch(source) if isinstance(source, str) else None
    return source if found is None else found[2] or found[3]


def variable_of(source: str | os.PathLike[str], variable: str | None) -> Variable | None:
    """What is asked for, None for a plain raster.

    Raises
    ------
    InvalidInputError
        A remote file, a variable of a file that has none, or two variables.
    ObjectNotFoundError, AccessDeniedError
        The file cannot be read.
    """
    named = _NAMED.fullmatch(source) if isinstance(source, str) else None
    if named is None and variable is None and not _is_zarr(source):
        return None
    file = source if named is None else named[2] or named[3]
    name = (named[4] or None) if named is not None else None
    if name and variable not in {None, name}:
        raise InvalidInputError("two variables are named", found=variable, expected=name)
    name = variable if name is None else name
    if name is not None and ('"' in name or not name.isprintable() or not name.strip("/")):
        raise InvalidInputError("not the name of a variable", found=shown(repr(name)))
    location = parse_href(file)
    if not location.is_local:
        raise InvalidInputError(
            "a variable of a remote file",
            where=location.label,
            hint="copy the file to this machine first, or open it with xarray",
        )
    path = Path(location.path).absolute()
    kinds = _kinds_of(path) if named is None else (named[1].upper(),)
    if '"' in str(path):
        raise InvalidInputError("a path with a quote", where=shown(str(path)))
    return Variable(str(path), kinds, name)


def _is_zarr(source: Any) -> bool:
    if not isinstance(source, str | os.PathLike) or not isinstance(os.fspath(source), str):
        return False  # what is no path is told where it is opened
    path = Path(os.fspath(source))
    return path.is_dir() and any((path / n).is_file() for n in (".zgroup", ".zarray", "zarr.json"))


def _kinds_of(path: Path) -> tuple[str, ...]:
    if path.is_dir():
        return ("ZARR",)
    head = head_of(str(path), str(path))
    for magic, kinds in _KINDS:
        if head.startswith(magic):
            return kinds
    raise InvalidInputError(
        "a raster of this format has no variables", where=str(path), expected="NetCDF, HDF5 or Zarr"
    )


def head_of_any(path: str) -> bytes:
    """The first bytes of a local file, none of a folder.

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError
        It cannot be read.
    """
    return b"" if Path(path).is_dir() else head_of(path, path)


def names_of(dataset: Any) -> list[str]:
    """The variables of a container, as they may be asked for."""
    named = [name.rpartition(":")[2].lstrip("/") for name in dataset.subdatasets]
    only = dataset.tags(1).get("NETCDF_VARNAME") if dataset.count else None
    return named or [one for one in (only,) if one]


def refuse_container(dataset: Any, where: str) -> None:
    """Refuse a file that holds several rasters and is none itself."""
    if dataset.count == 0 and dataset.subdatasets:
        raise no_variable(where, None, names_of(dataset))


def no_variable(where: str, wanted: str | None, known: list[str]) -> InvalidInputError:
    """The error about a file of which a variable must be named, or has none of that name."""
    return InvalidInputError(
        "the file has no such variable" if wanted else "a file of several variables",
        where=where,
        found=None if wanted is None else shown(wanted),
        expected=", ".join(map(shown, known[:40])) or None,
        hint="say which one: variable= (--variable on the command line)",
    )
