"""Tables of several files as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from comal.errors import InvalidMetadataError


def joined(tables: Sequence[Any], where: str) -> Any:
    """Tables under one another; a column that one of them lacks, or has without a type, is null.

    Raises
    ------
    InvalidMetadataError
        A column has types that do not go together.
    """
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return pa.concat_tables(tables)
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InvalidMetadataError(
            "columns of the same name have types that do not go together",
            where=where,
            found=str(error),
            hint="name the columns that are wanted by columns=[...]",
        ) from error
