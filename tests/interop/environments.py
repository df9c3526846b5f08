"""The environments of the reference packages, and how drivers run in them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import REPOSITORY

DRIVERS = Path(__file__).parent / "drivers"
LATEST = "reader-2.4.21"
"""Has the reference writer too."""
SPECIFIED = "reader-2.4.13"
OLDEST = "reader-2.0.0rc5"

RUN = """
import contextlib, json, os, runpy, sys, warnings
sys.argv.pop(0)
sys.path.append(os.path.dirname(sys.argv[0]))
warnings.simplefilter("ignore")
with contextlib.redirect_stdout(sys.stderr):
    answer = runpy.run_path(sys.argv[0])["answer"]
    answers = [answer(job) for job in json.load(sys.stdin)]
json.dump(answers, sys.stdout, default=str)
sys.stdout.flush()
os._exit(0)
"""
"""Runs a driver for each of its jobs, and leaves without taking the interpreter down.

Now and then native threads of the reference packages abort the process there ("terminate called
without an active exception"), long after the driver has given all its answers. A driver that
fails before ends with its traceback and an exit code as ever.
"""


def python_of(name: str) -> Path:
    """The interpreter of an environment.

    Without it the test skips; in continuous integration nothing is skipped without notice.
    """
    python = REPOSITORY / ".interop" / name / "bin" / "python"
    if not python.exists():
        reason = f"environment {name} is missing: run 'sh scripts/interop-envs'"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return python


def drive(
    name: str, driver: str, home: Path, jobs: Sequence[object], *arguments: object
) -> list[Any]:
    """What ``answer`` of a driver gives for each job, by the interpreter of an environment.

    The reference packages keep caches and look for extensions in the home folder, which is
    therefore an empty one. Their modules are compiled once: that takes most of a first start.
    """
    home.mkdir(exist_ok=True)
    python = python_of(name)
    compiled = f"pycache_prefix={python.parents[1] / '.pycache'}"
    done = subprocess.run(
        [python, "-I", "-X", compiled, "-c", RUN, DRIVERS / driver, *map(str, arguments)],
        capture_output=True,
        input=json.dumps(jobs).encode(),
        env={
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home),
            "TACOREADER_CACHE_DIR": str(home / "cache"),
            "PATH": os.environ.get("PATH", ""),
        },
        cwd=home,
        timeout=300,
        check=False,
    )
    if done.returncode:
        message = done.stderr.decode(errors="replace")[-3_000:]
        raise AssertionError(f"{driver} failed in {name}:\n{message}")
    answers: list[Any] = json.loads(done.stdout)
    return answers
