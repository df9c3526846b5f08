"""Small files that would become large: read and checked in a process with little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.attacks.build import FLAT, Recipe, parquet

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="peak memory is read from /proc"
)

_MEMORY = 3 << 30
"""Address space, of which libraries reserve 1 to 2 GB before anything is read."""
_SECONDS = 60

_PROGRAM = """
import json, resource, sys, warnings
if {memory}:
    resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
warnings.simplefilter("ignore")
from comal.errors import ComalError
from comal.taco.checking import check
from comal.taco.reading.dataset import load
path, answers = "", []
for what in sys.argv[1:]:
    try:
        if what.endswith(".tacozip"):
            path = what
            continue
        if what == "check":
            answers.append(dict(check(path).counts))
        elif what == "open":
            answers.append(load(path).id)
        elif what == "data":
            answers.append(len(load(path).data))
        else:
            answers.append(len(load(path).sql(what).data))
    except ComalError as error:
        answers.append(type(error).__name__)
# ``ru_maxrss`` would begin with what the parent had taken when it started this process.
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps([answers, peak]))
"""


def _same(value: Any, rows: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))


def _level(rows: int, **columns: Any) -> bytes:
    zero, numbers = pa.array([0] * rows, pa.int64()), pa.array(range(rows), pa.int64())
    table = pa.table(
        {
            "id": _same("a", rows),
            "type": _same("FILE", rows),
            **columns,
            "internal:current_id": numbers,
            "internal:parent_id": numbers,
            "internal:offset": zero,
            "internal:size": zero,
        }
    )
    return parquet(table, store_schema=False, row_group_size=rows)


def _texts() -> bytes:
    """One text of a megabyte, six thousand times: 6 GB out of a few KB."""
    return _level(6_000, text=_same("x" * 1_000_000, 6_000))


def _rows() -> bytes:
    """25 million rows, more than the limit, in a few hundred KB."""
    rows = 25_000_000
    numbers = pa.chunked_array([pa.nulls(rows, pa.int8()).fill_null(0)])
    table = pa.table(dict.fromkeys(("id", "type", "a"), numbers))
    return parquet(table, store_schema=False)


def _run(*whats: Path | str, memory: int = _MEMORY) -> tuple[list[Any], int]:
    """What comes of each, one after the other in one process, and the memory at its peak.

    A path is what those behind it open.
    """
    program = _PROGRAM.format(memory=memory, seconds=_SECONDS)
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, whats)],
        capture_output=True,
        text=True,
        timeout=2 * _SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers, peak = json.loads(done.stdout)
    return answers, peak


def test_bombs_cost_no_more_than_what_is_asked_for(tmp_path: Path) -> None:
    texts, rows = (
        _write(tmp_path / "texts.tacozip", _texts),
        _write(tmp_path / "rows.tacozip", _rows),
    )
    answers, peak = _run(
        texts, "open", "SELECT id FROM data LIMIT 3", "check", rows, "check", "data"
    )
    for answer in answers[3:]:
        assert answer in ("LimitExceededError", "InvalidMetadataError") or (
            "taco-column-type" in answer
        )
    assert peak < 600_000  # KB


ALL = (
    "data",
    "SELECT max(text) FROM data WHERE text > 'w'",
    "SELECT a.id FROM data AS a JOIN data AS b ON a.text = b.text",
)


def test_all_of_a_bomb_at_once_is_refused(tmp_path: Path) -> None:
    """Without any limit of the operating system."""
    answers, peak = _run(_write(tmp_path / "texts.tacozip", _texts), *ALL, memory=0)
    assert answers == ["LimitExceededError"] * len(ALL)
    assert peak < 1_000_000


def _write(path: Path, level: Callable[[], bytes]) -> Path:
    path.write_bytes(Recipe(tree=FLAT, level_bytes=lambda depth, data: level()).build())
    assert path.stat().st_size < 3_000_000
    return path
