"""Containers opened lazily: levels, views, frames (TACO 2.0, 7.2)."""
