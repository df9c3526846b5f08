"""Samples, tortillas and datasets as columns: what is written before it is bytes (TACO 2.0, 5)."""
