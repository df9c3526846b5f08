"""Hostile and broken files, made byte by byte, and what every entry point must do with them."""
