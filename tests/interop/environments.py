"""The environments of the reference packages, and how drivers run in them."""

from __future__ import annotations

import json
import os
import subprocess
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
import os, runpy, sys
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""
"""Runs a driver and leaves without taking the interpreter down.

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


def drive(name: str, driver: str, home: Path, *arguments: object, jobs: object = None) -> Any:
    """What a driver prints when it is given `jobs`, run by the interpreter of an environment.

    The reference packages keep caches and look for extensions in the home folder, which is
    therefore an empty one.
    """
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [python_of(name), "-I", "-B", "-c", RUN, DRIVERS / driver, *map(str, arguments)],
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
    return json.loads(done.stdout)
