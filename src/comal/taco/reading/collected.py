"""TACOLLECTION.json: one collection over datasets that lie beside it (TACO 2.0, 6.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from comal import strictjson
from comal.errors import (
    InvalidMetadataError,
    NotThisFormatError,
    UnsafeContentError,
    UnsupportedVersionError,
    shown,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.names import illegal
from comal.plan import Head, Whole
from comal.storage import Source
from comal.taco import spec

_HEAD = 64


@dataclass(frozen=True, slots=True)
class Collected:
    """A collection document and the names of its datasets."""

    source: Source
    document: dict[str, Any]
    files: tuple[str, ...]
    base: Source | None

    def part(self, name: str) -> Source:
        """The dataset of this name, beside the document or in the folder that was named."""
        return self.source.sibling(name) if self.base is None else self.base.child(name)


def read_collected(
    source: Source, base: Source | None = None, limits: Limits = DEFAULT_LIMITS
) -> Collected | None:
    """The document at `source`; None where no JSON is.

    Raises
    ------
    NotThisFormatError
        JSON that names no datasets, such as the COLLECTION.json of one.
    UnsupportedVersionError
        Another major version of TACO.
    InvalidMetadataError, LimitExceededError, UnsafeContentError
        JSON that is broken, too large, or whose names are no names of files.
    """
    (head,) = source.fetch([Head(_HEAD)])
    if not head.data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return None
    (piece,) = source.fetch([Whole(limits.json_bytes)])
    document = strictjson.loads(piece.data, source.href, limits)
    listed = document.get(spec.SOURCES)
    if listed is None:
        raise NotThisFormatError(
            "a JSON document that names no datasets",
            where=source.href,
            expected=f"{spec.SOURCES}, as in a {spec.TACOLLECTION}",
            hint=f"of a dataset in a folder, open the folder that holds {spec.COLLECTION}",
        )
    version = document.get("taco_version")
    if not spec.version_is_readable(version):
        raise UnsupportedVersionError(
            "unknown version of TACO", where=source.href, found=shown(version), expected="2.x"
        )
    return Collected(source, document, _files(listed, source.href), base)


def _files(listed: Any, where: str) -> tuple[str, ...]:
    files = listed.get("files") if isinstance(listed, dict) else None
    texts = [name for name in files if isinstance(name, str)] if isinstance(files, list) else []
    if not texts or texts != files or len(set(texts)) < len(texts):
        raise InvalidMetadataError(
            f"{spec.SOURCES}.files is no list of datasets",
            where=where,
            found=shown(files),
            expected="their names, each once",
        )
    for name in texts:
        reason = illegal(name)
        if reason is not None:
            raise UnsafeContentError(
                f"{spec.SOURCES}.files holds no file name: it {reason}",
                where=where,
                found=shown(name),
            )
    return tuple(texts)
