"""What is known of an object, and which version of it was seen first: versions are never mixed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from comal.errors import ObjectChangedError

if TYPE_CHECKING:
    from comal.storage.location import Location

# A folder data set may have millions of objects. Its indexes are opened first and stay pinned;
# leaves beyond this number are single reads, each checked against itself.
_MOST = 16_384


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What is known of one object; two versions of it differ in size, `etag` or `modified`."""

    href: str
    """Normalised URL, without user, password and query, or absolute path."""
    size: int
    """Size in bytes; 0 for a folder."""
    etag: str | None = None
    """A strong entity tag or a version, where the storage gives one."""
    modified: int | None = None
    """Time of the last change in nanoseconds since 1970, UTC."""
    is_dir: bool = False
    """Whether this is a folder, or a prefix that objects have."""
    variant: str = field(default="", repr=False)
    """Tells apart objects whose URLs differ in their query alone."""


class Pins:
    """First answers by href, shared by a source and the sources made from it."""

    def __init__(self) -> None:
        self._seen: dict[str, ObjectInfo] = {}
        self.whole: Location | None = None
        """A file whose version is that of the whole folder; see `local.bind`."""

    def get(self, href: str) -> ObjectInfo | None:
        """What was seen first of an object."""
        return self._seen.get(href)

    def check(self, info: ObjectInfo, where: object) -> ObjectInfo:
        """Remember a first answer, or compare a later one with it.

        Raises
        ------
        ObjectChangedError
            When the object is another version than the one that is remembered.
        """
        # No lock, which a fork could leave held: `setdefault` is one step.
        first = self._seen.get(info.href)
        if first is None:
            first = self._seen.setdefault(info.href, info) if len(self._seen) < _MOST else info
        if not same_version(first, info):
            raise changed(where, first, info)
        return first

    def __getstate__(self) -> dict[str, Any]:
        return {"_seen": self._seen.copy(), "whole": self.whole}


def same_version(first: ObjectInfo, second: ObjectInfo) -> bool:
    """Whether two answers are of one version, as far as they tell.

    A strong entity tag decides; without one on both sides the time of change does, to the second,
    which is all that HTTP knows. The size always counts.
    """
    if first.size != second.size or first.is_dir != second.is_dir:
        return False
    if first.etag is not None and second.etag is not None:
        return first.etag == second.etag
    if first.modified is not None and second.modified is not None:
        return first.modified // 10**9 == second.modified // 10**9
    return True


def changed(where: object, first: ObjectInfo, second: ObjectInfo | None) -> ObjectChangedError:
    """The error for an object that is no longer the one that was opened."""
    return ObjectChangedError(
        "the object changed while it was read",
        where=str(where),
        found=_shown(second) if second else None,
        expected=_shown(first),
        hint="open it again to read the new version",
    )


def _shown(info: ObjectInfo) -> str:
    version = f", version {info.etag}" if info.etag else ""
    return f"{info.size} bytes{version}"
