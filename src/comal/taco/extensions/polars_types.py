"""Types and schemas of polars, for extensions written with it (TACO 2.0, 7.1.2).

The one module that imports polars on behalf of extensions; it is loaded only when an extension
declares a polars type or returns a polars frame.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from comal.errors import InvalidInputError, MissingExtraError

try:
    import polars as pl
except ImportError as error:  # pragma: no cover - a polars type comes from an installed polars
    raise MissingExtraError.of("polars", "polars", "an extension schema of polars types") from error


def arrow_type(kind: Any) -> pa.DataType:
    """The Arrow type for a polars type, in the plain forms that comal writes."""
    if kind == pl.Object:
        raise InvalidInputError("polars type that has no Arrow type", found=repr(kind)[:60])
    try:
        return _plain(pl.Series([], dtype=kind).to_arrow().type)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise InvalidInputError(
            "polars type that has no Arrow type", found=repr(kind)[:60]
        ) from error


def arrow_table(frame: Any) -> pa.Table:
    """A polars frame as an Arrow table, without the view types that Arrow cannot cast."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _plain(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, _plain(part.type)) for part in kind])
    return kind
