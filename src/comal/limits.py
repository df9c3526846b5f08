"""Caps on what a file may make us hold. Every default can be raised by passing another `Limits`."""

from __future__ import annotations

from dataclasses import dataclass

from comal.errors import LimitExceededError

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds that are checked before memory is taken.

    Sizes are bytes. Streaming paths hold nothing that grows with the data set and need no cap.
    """

    json_bytes: int = 16 * MIB
    json_depth: int = 64
    json_digits: int = 40
    table_bytes: int = 512 * MIB
    table_rows: int = 20_000_000
    table_cells: int = 200_000_000
    table_columns: int = 2_000
    table_nesting: int = 8
    column_name_bytes: int = 128
    taco_levels: int = 6
    tortilla_depth: int = 16
    leaf_bytes: int = 2 * GIB
    tile_bytes: int = 64 * MIB
    raster_bytes: int = 2 * GIB
    query_bytes: int = 64 * KIB

    def check(self, name: str, value: int, where: str) -> None:
        """Raise `LimitExceededError` when `value` is over the limit called `name`."""
        limit = getattr(self, name)
        if value > limit:
            raise LimitExceededError(
                f"{name.replace('_', ' ')} over the limit",
                where=where,
                found=value,
                expected=f"at most {limit}",
                hint=f"pass limits=Limits({name}={value}) if the source is trusted",
                limit=name,
            )


DEFAULT_LIMITS = Limits()
