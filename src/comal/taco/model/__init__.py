"""Samples, tortillas and datasets as columns, before they are written (TACO 2.0, 5)."""
