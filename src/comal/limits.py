"""Upper bounds for memory and sizes. To raise a default, pass another `Limits`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from comal.errors import InvalidInputError, LimitExceededError, shown

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds that are checked before memory is taken.

    Sizes are bytes. Streaming code holds nothing that grows with the data set and needs no limit.
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

    def check(self, name: str, value: int, where: str, column: str | None = None) -> None:
        """Raise `LimitExceededError` when `value` is over the limit called `name`.

        `where` must be safe to print; the name of a `column` may contain anything.
        """
        limit = getattr(self, name)
        if value > limit:
            raise LimitExceededError(
                f"{name.replace('_', ' ')} over the limit",
                where=where if column is None else f"{where}, column {shown(column)}",
                found=value,
                expected=f"at most {limit}",
                hint=f"pass limits=Limits({name}={value}) if the source is trusted",
                limit=name,
            )


DEFAULT_LIMITS = Limits()


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_UNITS |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "PIB": 2**50}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGTP]I?B|B?)\s*", re.IGNORECASE | re.ASCII)


def parse_size(size: int | str, what: str = "no size") -> int:
    """Bytes of a size such as ``4_000_000_000``, ``"20GB"``, ``"500B"`` or ``"512 MiB"``.

    Raises
    ------
    InvalidInputError
        With the text `what`: not a size, or not above 0.
    """
    match = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if match is not None:
        size = int(float(match[1]) * _UNITS[match[2].upper()])
    if not isinstance(size, int) or isinstance(size, bool) or size <= 0:
        raise InvalidInputError(what, found=shown(size), expected="bytes, or text such as '20GB'")
    return size
