"""Faults of the system at a chosen call, put in by a library that is loaded before all others."""
