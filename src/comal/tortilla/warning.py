"""The category of warnings about content."""

from __future__ import annotations


class TortillaWarning(UserWarning):
    """Content that is wrong somewhere, though what is returned is right."""
