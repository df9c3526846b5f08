"""Run by the interpreter of a reference reader of Tortilla 0.5: opens a file many times.

A job is the file and how often; the answer is the number of rows of each. The argument names the
module that has `load`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

reader: Any = import_module(sys.argv[1])


def answer(job: tuple[str, int]) -> list[int]:
    path, times = job
    return [len(reader.load(path)) for _ in range(times)]
