"""Checking RaQuet files, and mending what can be mended."""
