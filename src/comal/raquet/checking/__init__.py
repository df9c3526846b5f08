"""Checking RaQuet files, and repairing them."""
