"""Filters in the text form of CQL2 (OGC 21-065): parsed into a tree, never into SQL.

The subset: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, over columns and literals.
"""
