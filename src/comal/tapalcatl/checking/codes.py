"""Every code that a check can report, with its severity. Codes are stable; the list only grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ERRORS = {
    # The archive as a ZIP
    "zip-end": "there is no end record, or it cannot be used",
    "zip-directory": "the central directory cannot be read",
    "zip-count": "the end record and the directory disagree about the number of entries",
    "zip-two-ends": "several end records hold",
    "zip-trailing-bytes": "bytes follow the archive",
    "zip-zip64-locator": "the ZIP64 locator points nowhere",
    "zip-zip64-mismatch": "the plain and the ZIP64 end record disagree",
    "zip-zip64-field": "a ZIP64 field of an entry cannot be used",
    "zip-prefix": "bytes stand before the archive and are not counted in it",
    "zip-span": "an entry reaches outside of the archive",
    "zip-overlap": "an entry reaches into another one",
    "zip-duplicate-name": "an entry name stands twice; the last one counts",
    "zip-name": "an entry name is no safe path",
    "zip-name-encoding": "an entry name is not the UTF-8 that it claims",
    "zip-local-header": "an entry has no local header",
    "zip-local-mismatch": "a local header is not what the directory says",
    "zip-method": "an entry has a compression method that is not supported",
    "zip-size": "a stored entry has two sizes",
    "zip-encrypted": "an entry is encrypted",
    "zip-symlink": "an entry is a symbolic link",
    "zip-content": "a compressed entry does not inflate to what it should",
    "zip-crc": "the bytes of an entry do not match its checksum",
    # The comment of an archive
    "comment-json": "the comment is no JSON object that describes an archive",
    "comment-version": "the comment is of a version of Tapalcatl that is not known",
    "comment-ascii": "the comment is not one line of printable ASCII",
    "comment-end-record": "the comment holds the signature of an end record",
    # What an archive says of itself
    "archive-root": "the root of the comment is not where the archive is",
    "archive-zooms": "tiles lie outside of the zooms of the comment",
    "archive-bounds": "the bounds of the comment are narrower than the root tiles, or miss tiles",
    "archive-formats": "tiles have a format that the comment does not know",
    # The tileset's document
    "document": "the document cannot be read",
    "document-version": "the document is of a version of Tapalcatl that is not known",
    "document-source": "no archive is where the document or the configuration leads to",
    "document-formats": "the document has no formats, or tiles have one that it does not know",
    "document-zooms": "tiles lie outside of the zooms of the document",
    "document-bounds": "tiles lie outside of the bounds of the document",
    "tile-place": "a tile is in an archive that nobody looks for it in",
    "change-unfinished": "a change of several archives is decided and not in its place yet",
    "archive-stray": "an archive is where no tile leads to",
    # The tiles
    "tile-image": "an image cannot be decoded",
    "tile-encoding": "the bytes are not encoded as the headers say",
    "tile-vector": "a vector tile is no Mapbox vector tile",
    "tile-json": "a tile is not the JSON that it should be",
    "limit-exceeded": "the content is larger than the limits allow",
    "unsafe-content": "a name would lead out of the tileset",
}

_WARNINGS = {
    "zip-shared-header": "several entries share one local header",
    "zip-gap": "bytes stand between the directory and its end record",
    "zip-local-note": "fields that no reader needs differ in the two headers of an entry",
    "comment-missing": "the archive has no comment",
    "comment-cut": "the comment lacks a field that existing readers want",
    "formats-shape": "headers of a format are no list of objects with one key each",
    "entry-name": "an entry is no tile",
    "entry-comment": "the comment of an entry is no list of headers",
    "entry-header": "a tile sets a header that no tile may set",
    "archive-scales": "tiles have a scale that the document does not know",
    "archive-document": "the comment of an archive and the document disagree",
    "change-begun": "a change was begun and left; nothing of it is in its place",
    "archive-missing": "an archive inside zooms and bounds is not there",
    "archive-directory": "a directory does not fit into the first request of 64 KiB",
    "dead-space": "bytes belong to no tile any more",
    "newer-version": "a document or comment may say more than this version of comal understands",
    "document-field": "the document lacks a field that existing readers want",
    "tile-type": "the bytes of a tile are another kind than its headers say",
    "tile-empty": "a tile has no bytes",
    "tile-not-decoded": "an image is of a format that is compared by its checksum alone",
}

CODES: Final[Mapping[str, tuple[str, str]]] = {
    **{code: ("error", text) for code, text in _ERRORS.items()},
    **{code: ("warning", text) for code, text in _WARNINGS.items()},
}
"""Code to severity (``error`` or ``warning``) and meaning."""

MILDER: Final[Mapping[str, str]] = {"zip-local-mismatch": "zip-local-note"}
"""What stands for a code that the ZIP room has found to be a warning."""
