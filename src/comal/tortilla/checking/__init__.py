"""Checking files: every problem, with its place, instead of the first."""
