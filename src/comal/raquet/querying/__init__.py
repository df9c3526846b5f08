"""Queries on RaQuet files: SQL with the functions of DuckDB's extension, and zonal statistics."""
