"""What RaQuet writes, and how an earlier one is told from other files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from comal.errors import ComalError
from comal.plan import ByteRange, run
from comal.raquet import spec
from comal.storage import open_source
from comal.storage.kinds import Kind
from comal.storage.targetlock import Owns
from comal.table.footer import footer_plan

_PART = re.compile(r"z\d{1,2}_\d{1,10}_\d{1,10}\.parquet")


def _claim_file(path: Path) -> Owns | None:
    with open_source(path) as source:
        span = ByteRange(0, path.stat().st_size)
        names = run(footer_plan(span), source.fetch).schema.names
    return (lambda _: True) if {spec.BLOCK, spec.METADATA} < set(names) else None


def _claim_parts(path: Path) -> Owns | None:
    def owns(name: str) -> bool:
        if not _PART.fullmatch(name):
            return False
        try:
            return _claim_file(path / name) is not None
        except ComalError:
            return False

    return owns if any(owns(part.name) for part in path.iterdir()) else None


RAQUET: Final = Kind("a RaQuet file", _claim_file)
PARTS: Final = Kind("a folder of RaQuet parts", _claim_parts)
