"""`python -m tests.frozen [--record] [NAME...]`: compare facts with the code, or record them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from tests.frozen.compare import JOBS, differences, found, record

names = [word for word in sys.argv[1:] if not word.startswith("-")] or list(JOBS)
with tempfile.TemporaryDirectory() as folder:
    for name in names:
        now = found(name, Path(folder))
        if "--record" in sys.argv:
            record(name, now)
            continue
        lines, unused = differences(name, now)
        lines += [f"no fact needs the reason {pattern!r}" for pattern in unused]
        click.echo("\n".join([f"{name}: {len(lines)} lines", *lines]))
