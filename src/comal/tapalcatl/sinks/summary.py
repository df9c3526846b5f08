"""What an export came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Exported:
    """Tiles that were written in another format."""

    output: str
    tiles: int
    ext: str
    min_zoom: int
    max_zoom: int

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return asdict(self)
