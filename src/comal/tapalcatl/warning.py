"""The category of warnings about tilesets."""

from __future__ import annotations


class TapalcatlWarning(UserWarning):
    """Content that is wrong or left out somewhere, though what is returned or written is right."""
