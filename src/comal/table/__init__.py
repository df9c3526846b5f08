"""Parquet tables over byte ranges, and the one way tables are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.table.columns import plain_schema as plain_schema
    from comal.table.columns import plain_table as plain_table
    from comal.table.footer import Footer as Footer
    from comal.table.footer import footer_plan as footer_plan
    from comal.table.read import ParquetTable as ParquetTable
    from comal.table.write import ParquetSettings as ParquetSettings
    from comal.table.write import Writer as Writer
    from comal.table.write import write_table as write_table

__all__, __getattr__, __dir__ = exports(__name__, guard=False)
