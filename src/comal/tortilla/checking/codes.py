"""Every code that a check can report, with its severity. Codes are stable; the list only grows."""

from __future__ import annotations

from collections.abc import Mapping

_ERRORS = {
    "tortilla-header": "the header cannot be used",
    "tortilla-footer": "the footer cannot be read",
    "tortilla-collection": "the collection of a TACO v1 cannot be read",
    # Columns of the core: "The Footer"
    "tortilla-column-missing": "a mandatory column is missing",
    "tortilla-column-type": "a column has a type that it cannot have",
    "tortilla-column-null": "a mandatory column holds nulls",
    "tortilla-id-null": "an item has no id",
    "tortilla-id-twice": "an id stands twice",
    "tortilla-split": "a split that is none of train, validation and test",
    # Spans
    "tortilla-span-bounds": "an item lies outside of the data",
    "tortilla-span-overlap": "two items share bytes without being the same",
    # STAC
    "tortilla-crs": "a CRS that nobody knows",
    "tortilla-geotransform": "a geotransform that is none",
    "tortilla-raster-shape": "a shape that is none",
    "tortilla-time-order": "an item ends before it starts",
    # Payloads
    "tortilla-magic": "the bytes of an item are not of its format",
    "tortilla-item": "the bytes of an item cannot be read",
    # Nesting
    "tortilla-nested": "a nested file cannot be read",
    "tortilla-depth": "files are nested too deep",
    # Sets of parts: "The Data Partition"
    "tortilla-part-missing": "a part of the set is missing",
    "tortilla-part-twice": "a file is named twice",
    "tortilla-part-count": "the number of parts is not what the header says",
    # What a check could not go on with
    "limit-exceeded": "the content is larger than the limits allow",
    "unsafe-content": "a name would lead out of the data",
}

_WARNINGS = {
    "tortilla-name": "the name of the file does not fit what it is",
    "tortilla-id": "an id that cannot be a file name, or that other formats forbid",
    "tortilla-id-alike": "two ids are one name where case is ignored",
    "tortilla-format": "a format that neither GDAL nor the specification knows",
    "tortilla-stored-path": "a stored path of the writer's machine",
    "tortilla-time-year": "a time that looks like a year instead of seconds",
    "tortilla-time-unit": "a time that looks like another unit than seconds",
    "tortilla-centroid": "a centroid that is no point, outside of its raster or not in its middle",
    "tortilla-rai-range": "a value of RAI that cannot be",
    "tortilla-zero": "an item whose bytes are all zero",
    "tortilla-collection-field": "a field of the collection is missing",
    "tortilla-part-absent": "another part of the set is not beside this one",
    "tortilla-part-schema": "the parts of a set differ in their columns",
}

CODES: Mapping[str, tuple[str, str]] = {
    **{code: ("error", text) for code, text in _ERRORS.items()},
    **{code: ("warning", text) for code, text in _WARNINGS.items()},
}
"""Code to severity (``error`` or ``warning``) and meaning."""
