"""Copy containers: export, the two conversions (TACO 2.0, 7.1.3, 7.1.4) and repair."""
