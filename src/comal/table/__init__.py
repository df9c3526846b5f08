"""Parquet tables over byte ranges, and the one way tables are written."""

from comal.table.footer import Footer, footer_plan
from comal.table.read import ParquetTable
from comal.table.schema import plain_schema, plain_table
from comal.table.write import ParquetSettings, Writer, write_table

__all__ = [
    "Footer",
    "ParquetSettings",
    "ParquetTable",
    "Writer",
    "footer_plan",
    "plain_schema",
    "plain_table",
    "write_table",
]
