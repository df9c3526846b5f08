"""Earth-observation archives in cheap storage, read by byte range."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comal.errors import ComalError as ComalError
    from comal.limits import Limits as Limits
    from comal.storage.syncing import sync as sync

__version__ = "0.1.0.dev0"

_HOMES = {"ComalError": "comal.errors", "Limits": "comal.limits"}
_ROOMS = (
    "demo",
    "errors",
    "formats",
    "geo",
    "grid",
    "ml",
    "raquet",
    "raster",
    "server",
    "site",
    "storage",
    "taco",
    "tapalcatl",
    "tortilla",
)

__all__ = ["ComalError", "Limits", "__version__", "open", "sync"]


def open(href: str | os.PathLike[str]) -> Any:  # noqa: A001 - the name users expect: comal.open
    """Open an archive with the reader of its format.

    Parameters
    ----------
    href
        A path, or a URL: ``https://``, ``s3://``, ``gs://``, ``az://``. The format is found by the
        bytes, not by the name.

    Returns
    -------
    comal.taco.TacoDataset
        For TACO 2.0 in any of its containers.
    comal.tortilla.TortillaFrame
        For Tortilla and TACO 1.
    comal.raquet.RaquetFile
        For RaQuet.
    comal.tapalcatl.TileSet
        For Tapalcatl 1 and 2.

    Raises
    ------
    NotThisFormatError
        The file is of no format that comal knows.
    UnsupportedVersionError
        The format is known and cannot be read.
    ObjectNotFoundError
        The file does not exist.
    """
    return import_module("comal.formats").open_any(href)


def __getattr__(name: str) -> Any:
    # Nothing heavy is imported before a package that needs it is used.
    if name in _ROOMS:
        return import_module(f"comal.{name}")
    if name == "sync":
        return import_module("comal.public").guarded(import_module("comal.storage.syncing").sync)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'comal' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
