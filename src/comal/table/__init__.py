"""Parquet tables over byte ranges, and the one way tables are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.table.footer import Footer as Footer
    from comal.table.footer import footer_plan as footer_plan
    from comal.table.read import ParquetTable as ParquetTable
    from comal.table.schema import plain_schema as plain_schema
    from comal.table.schema import plain_table as plain_table
    from comal.table.write import ParquetSettings as ParquetSettings
    from comal.table.write import Writer as Writer
    from comal.table.write import write_table as write_table

_HOMES = {
    "Footer": "footer",
    "ParquetSettings": "write",
    "ParquetTable": "read",
    "Writer": "write",
    "footer_plan": "footer",
    "plain_schema": "schema",
    "plain_table": "schema",
    "write_table": "write",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table names both the homes and the exports


__getattr__ = exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
