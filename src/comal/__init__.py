"""Earth-observation archives in cheap storage, read by byte range."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
