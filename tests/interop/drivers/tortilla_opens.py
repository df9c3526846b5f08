"""Run by the interpreter of a reference reader of Tortilla 0.5: opens a file many times.

Arguments are the module that has `load`, the file, and how often; standard output is the number of
rows of each.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from importlib import import_module
from typing import Any

warnings.simplefilter("ignore")
reader: Any = import_module(sys.argv[1])
with contextlib.redirect_stdout(sys.stderr):
    rows = [len(reader.load(sys.argv[2])) for _ in range(int(sys.argv[3]))]
json.dump(rows, sys.stdout)
