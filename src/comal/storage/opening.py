"""From an href to the source that reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from comal.errors import AccessDeniedError, InvalidInputError, ObjectChangedError
from comal.storage.config import ANY, LOOPBACK, PUBLIC, StorageConfig, default_config
from comal.storage.location import HTTP_SCHEMES, STORE_SCHEMES, Location, StorePath, parse_href
from comal.storage.source import LocalSource, Source
from comal.storage.wrappers import SourceWrapper

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/")

_SINGLE = (str, bytes, bytearray, os.PathLike, Mapping)
"""Types that look iterable but are not lists of members."""


def open_source(
    href: str | os.PathLike[str] | Location, *, config: StorageConfig | None = None
) -> Source:
    """The source of a path or URL. Nothing is read or connected to yet.

    Parameters
    ----------
    href
        A local path, or a URL: ``file://``, ``http(s)://``, ``s3://bucket/key``,
        ``gs://bucket/key``, ``az://container/key``, ``hf://datasets/owner/name/path`` or
        ``memory://name/key``.
    config
        Settings and credentials.

    Raises
    ------
    InvalidInputError
        For an unknown scheme, or a URL without host or bucket.
    """
    if isinstance(href, StorePath):
        config = config or href.config
    return _opened(href if isinstance(href, Location) else parse_href(href), config)


def _opened(location: Location, config: StorageConfig | None, least: int = ANY) -> Source:
    config = config if config is not None else default_config()
    if location.is_local:
        return LocalSource(location, config)
    # Local files need none of these libraries.
    from comal.storage.remote import RemoteSource  # noqa: PLC0415

    if location.scheme in HTTP_SCHEMES:
        from comal.storage.http import HttpTransport  # noqa: PLC0415

        return RemoteSource(location, config, HttpTransport(config, least))
    from comal.storage.cloud import CloudTransport  # noqa: PLC0415

    return RemoteSource(location, config, CloudTransport(config))


def open_linked(source: Source, reference: str) -> Source:
    """The source of a reference in an archive; every reference in content is opened here.

    Credentials of `source` are used at its own origin only: another origin gets those of
    `StorageConfig.linked_origins`, or none. The result has the wrappers of `source`.

    Parameters
    ----------
    source
        The source that holds the reference.
    reference
        A name relative to the folder of `source`, an absolute path, or a URL.

    Raises
    ------
    AccessDeniedError
        From a remote source: another origin, or a local file, that `linked_origins` does not
        name. A local source may refer to them, but reading then refuses link-local addresses, or
        with `StorageConfig.untrusted` all that are not public.
    UnsafeContentError
        A relative name that leaves its folder.
    InvalidInputError
        Neither a path nor a URL.
    """
    if not _ABSOLUTE.match(reference):
        return source.sibling(reference)
    return _led_to(source, parse_href(reference), by_caller=False)


def open_beside(source: Source, place: str | os.PathLike[str] | Source) -> Source:
    """The source of another path or URL that the caller, not an archive, gives with `source`.

    Parameters
    ----------
    place
        A path or URL: the origin of `source` gets its credentials, another origin only those of
        `StorageConfig.linked_origins`. Or an open source, which is returned as it is.

    Raises
    ------
    InvalidInputError
        As `as_source`.
    """
    if not isinstance(place, str | os.PathLike):
        return as_source(place)
    return _led_to(source, parse_href(place), by_caller=True)


def _led_to(source: Source, link: Location, *, by_caller: bool) -> Source:
    own, config = source.location, source.config
    if link.origin == own.origin:
        if not link.userinfo:
            link = replace(link, userinfo=own.userinfo, withheld=own.withheld)
        return source.at(link, fresh=True)
    linked = config.linked(link)
    if linked is not None or by_caller:
        return _wrapped(source, _opened(link, linked or config.public()))
    # The environment's keys work for every bucket: untrusted content must not choose one.
    if own.is_local and not (config.untrusted and link.scheme in STORE_SCHEMES):
        least = PUBLIC if config.untrusted else LOOPBACK
        return _wrapped(source, _opened(link, config.public(), least))
    raise AccessDeniedError(
        "a reference leads away from the origin of its archive",
        where=own.label,
        found=link.label,
        expected=f"a place at {own.origin}",
        hint=f"name {link.origin} in linked_origins if that is meant",
    )


def _wrapped(source: Source, other: Source) -> Source:
    """The source `other` in all wrappers of `source`."""
    if isinstance(source, SourceWrapper):
        return source.over(_wrapped(source.source, other))
    return other


def open_again(source: Source) -> Source:
    """The same source with the same wrappers, but without remembered versions."""
    return source.at(source.location, fresh=True)


def as_source(place: Any, *, config: StorageConfig | None = None) -> Source:
    """The source for a path or URL, which is opened, or for a `Source`, which is returned.

    Raises
    ------
    InvalidInputError
        Anything else, such as the bytes of a file; or as `open_source`.
    """
    if isinstance(place, str | os.PathLike):
        return open_source(place, config=config)
    if not isinstance(place, Source):
        raise InvalidInputError(
            "not a path, a URL or a source",
            found=type(place).__name__,
            expected="text, a pathlib.Path or a Source",
        )
    return place


def several(given: Any, what: str) -> list[Any]:
    """The members of a list that the caller gives, such as paths; at least one.

    Parameters
    ----------
    given
        A list or another iterable, which is read once.
    what
        What the members are, for the message: ``paths or URLs``.

    Raises
    ------
    InvalidInputError
        It is not a list, or an empty one. A text is not a list of its characters.
    """
    check_several(given, what)
    found = list(given)
    if not found:
        raise InvalidInputError("nothing is given", found="an empty list", expected=what)
    return found


def check_several(given: Any, what: str) -> None:
    """Check as `several` does, but allow iterables that are empty or too large to hold."""
    if isinstance(given, _SINGLE) or not isinstance(given, Iterable):
        raise InvalidInputError(
            "not a list", found=type(given).__name__, expected=f"a list of {what}"
        )


T = TypeVar("T")


def reload_once(opening: Callable[[], T]) -> T:
    """What `opening` returns; it is called again if an object changed during the first call.

    Nothing has been returned by then, so starting again mixes no versions. Later changes are
    errors: what was opened is one version.

    Parameters
    ----------
    opening
        Opens its sources itself, by `open_source`: an open source already remembers a version.

    Raises
    ------
    ObjectChangedError
        The object changed again, or a source is not opened again.
    """
    try:
        return opening()
    except ObjectChangedError:
        return opening()
