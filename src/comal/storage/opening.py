"""From an href to the source that reads it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from comal.errors import InvalidInputError
from comal.storage.config import DEFAULT_CONFIG, StorageConfig
from comal.storage.local import LocalSource
from comal.storage.location import FILE, HTTP_SCHEMES, parse_href
from comal.storage.source import Source

_SINGLE = (str, bytes, bytearray, os.PathLike, Mapping)
"""What can be gone through, or looks like it, and is no list."""


def open_source(href: str | os.PathLike[str], *, config: StorageConfig | None = None) -> Source:
    """The source of a path or URL. Nothing is read or connected to yet.

    Parameters
    ----------
    href
        A local path, or a URL: ``file://``, ``http(s)://``, ``s3://bucket/key``,
        ``gs://bucket/key``, ``az://container/key``, ``hf://datasets/owner/name/path`` or
        ``memory://name/key``.
    config
        How to speak to it.

    Raises
    ------
    InvalidInputError
        For an unknown scheme, or a URL without host or bucket.
    """
    location = parse_href(href)
    config = config if config is not None else DEFAULT_CONFIG
    if location.scheme == FILE:
        return LocalSource(location, config)
    # Local files need neither of these libraries.
    if location.scheme in HTTP_SCHEMES:
        from comal.storage.http import http_source  # noqa: PLC0415

        return http_source(location, config)
    from comal.storage.cloud import cloud_source  # noqa: PLC0415

    return cloud_source(location, config)


def as_source(place: Any, *, config: StorageConfig | None = None) -> Source:
    """What a caller names: a path or URL, which is opened, or a `Source`, which is taken as it is.

    Raises
    ------
    InvalidInputError
        Anything else, such as the bytes of a file; or as `open_source`.
    """
    if isinstance(place, str | os.PathLike):
        return open_source(place, config=config)
    if not (hasattr(place, "href") and hasattr(place, "fetch")):
        raise InvalidInputError(
            "not a path, a URL or a source",
            found=type(place).__name__,
            expected="text, a pathlib.Path or a Source",
        )
    source: Source = place
    return source


def several(given: Any, what: str) -> list[Any]:
    """The members of what a caller gives as a list, such as paths; at least one.

    Parameters
    ----------
    given
        A list, or anything else that is gone through once.
    what
        What the members are, for the message: ``paths or URLs``.

    Raises
    ------
    InvalidInputError
        It is no list, or an empty one. One text is no list of its letters.
    """
    check_several(given, what)
    found = list(given)
    if not found:
        raise InvalidInputError("nothing is named", found="an empty list", expected=what)
    return found


def check_several(given: Any, what: str) -> None:
    """As `several`, where nothing at all is fine, or too much is given to be held."""
    if isinstance(given, _SINGLE) or not isinstance(given, Iterable):
        raise InvalidInputError(
            "not a list", found=type(given).__name__, expected=f"a list of {what}"
        )
