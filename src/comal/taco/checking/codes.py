"""Every code that a check can report, with its severity. Codes are stable; the list only grows."""

from __future__ import annotations

from typing import Final

from comal.check import Check, rules
from comal.limits import DEFAULT_LIMITS, Limits
from comal.progress import Progress
from comal.ziparchive.check import ZIP_RULES

_NEVER = {"zip-count", "zip-zip64-field"}
"""Codes never reported: a strict reader refuses such a directory (`zip-directory`)."""
_ERRORS = {
    # The archive: TACO 2.0, 6.3
    **{code: text for code, text in ZIP_RULES.items() if code not in _NEVER},
    "zip-gap": "bytes stand between the directory and its end record",
    "zip-shared-header": "several entries share one local header",
    "zip-hole": "bytes belong to no entry",
    "zip-undeclared-entry": "an entry is not in the directory",
    "zip-compressed": "an entry is compressed; TACO stores all entries",
    "zip-descriptor": "an entry has its sizes after its data, in a data descriptor",
    "zip-folder-entry": "an entry is a folder",
    # Both headers: TACO 2.0, 6.3 and 6.5
    "taco-header": "the header is not valid",
    "taco-header-crc": "the checksum of TACO_HEADER is wrong",
    "taco-header-slot": "a slot of the header does not point to its entry",
    "taco-header-entry": "TACO_HEADER is not an ordinary entry of the archive",
    # Level tables: TACO 2.0, 6.2 and 7.2.3
    "taco-table": "a level table cannot be read",
    "taco-level-missing": "a level has no table",
    "taco-column-missing": "a mandatory column is missing",
    "taco-column-type": "a column has the wrong type",
    "taco-column-null": "a mandatory column holds nulls",
    "taco-type": "type is neither FILE nor FOLDER",
    "taco-current-id": "current_id is not the row number",
    "taco-parent": "parent_id names no FOLDER of the level above",
    "taco-path": "relative_path disagrees with the parents",
    "taco-folder-empty": "a FOLDER has no children",
    "taco-id": "an id is not allowed",
    "taco-id-twice": "an id appears twice among siblings",
    "taco-pit-1": "samples differ in structure",
    "taco-pit-2": "samples of one level differ in schema",
    "taco-padding": "a padding sample is not empty",
    # Spans: TACO 2.0, 6.3
    "taco-span-bounds": "a span lies outside the file",
    "taco-span-overlap": "two spans overlap",
    "taco-offset-mismatch": "a span is not that of its entry",
    "taco-entry-missing": "a row has no entry",
    "taco-entry-undeclared": "an entry belongs to no row",
    # Local metadata: TACO 2.0, 6.2
    "taco-meta": "local metadata cannot be read",
    "taco-meta-missing": "a FOLDER has no local metadata",
    "taco-meta-rows": "local metadata names other children",
    "taco-meta-span": "local metadata has other spans than the level",
    "taco-meta-value": "local metadata has other values than the level",
    # The collection: TACO 2.0, 5.6
    "taco-collection": "COLLECTION.json cannot be read",
    "taco-collection-field": "a field of the collection is not valid",
    "taco-extent": "the extent is not valid",
    "taco-version": "the version is unknown",
    "taco-pit-schema": "taco:pit_schema cannot be read or names other samples",
    # Folders: TACO 2.0, 6.1
    "taco-file-missing": "a row has no file",
    "taco-symlink": "a file of the dataset is a symbolic link or a special file",
    # The index: TACO 2.0, 6.5
    "taco-source": "a row does not say which ZIP holds it",
    "taco-source-missing": "a ZIP of the index is missing",
    "taco-source-broken": "a ZIP of the index cannot be read",
    "taco-source-rows": "the index has other rows than the ZIP",
    "taco-source-unlisted": "the ZIPs that the collection lists are not those of the rows",
    "taco-source-differs": "the datasets of a collection differ in structure or fields",
    # What a check could not go on with
    "unsafe-content": "a name would lead out of the dataset",
    "limit-exceeded": "the content is larger than the limits allow",
}

_WARNINGS = {
    "zip-local-note": "fields that no reader needs differ in the two headers of an entry",
    "taco-parent-root": "parent_id of level 0 is not the row number",
    "taco-row-order": "rows are not in the order of their parents",
    "taco-id-risky": "an id that some systems cannot hold",
    "taco-id-alike": "two ids are the same name where case is ignored",
    "taco-meta-ids": "local metadata has other row numbers than the level",
    "taco-meta-columns": "local metadata lacks columns of its level",
    "taco-stored-path": "a column holds paths of the machine that wrote the file",
    "taco-collection-note": "a field of the collection that other tools do not know",
    "taco-licence": "a licence that is not an SPDX expression",
    "taco-pit-count": "taco:pit_schema has stale counts",
    "taco-field-schema": "taco:field_schema does not match the columns",
    "taco-extent-space": "the extent does not cover the samples",
    "taco-extent-time": "the extent does not cover the times of the samples",
    "taco-crs-missing": "a geometry without a CRS is taken to be in degrees",
    "taco-extent-column": "a column of places cannot be read",
    "taco-extension-type": "a column of an extension has another type than it declares",
    "taco-extension-value": "a value that the extension of its column does not allow",
    "taco-file-extra": "a file belongs to no row",
    "taco-unlisted": "the folder cannot be listed, so extra files are not found",
    "taco-source-unchecked": "a ZIP of the index cannot be reached",
    "taco-source-stale": "the provenance of the index is not up to date",
}

CODES: Final = rules(_ERRORS, _WARNINGS)
"""Code to severity and meaning."""


def new_check(
    level: str = "structure",
    limits: Limits = DEFAULT_LIMITS,
    progress: Progress | None = None,
) -> Check:
    """An empty check of a TACO dataset."""
    # Problems of collection fields may be mere warnings, which have a code of their own.
    milder = {"taco-collection-field": "taco-collection-note"}
    return Check(CODES, level, limits, progress, milder=milder)
