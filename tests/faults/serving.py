"""The process in which faults happen; one that kills happens in a fork of it.

Standard input has a job per line, ``{"operation": "module:function", "folder": ..., "kind": ...,
"at": ..., "then": ...}``; standard output says what came of each.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import traceback
import warnings
from typing import Any

from tests.faults.harness import COUNT, KILL


def _outcome(operation: str, folder: str) -> dict[str, Any]:
    from comal.errors import ComalError

    module, _, name = operation.partition(":")
    try:
        getattr(importlib.import_module(module), name)(folder)
    except ComalError as error:
        return {"how": "error", "error": type(error).__name__, "text": str(error)}
    except BaseException:  # noqa: BLE001 - what must not be is told, too
        return {"how": "foreign", "text": traceback.format_exc()}
    return {"how": "done"}


def _run(library: Any, job: dict[str, Any]) -> dict[str, Any]:
    library.faults_arm(os.fsencode(job["folder"]), job["kind"], job["at"], job["then"])
    found = _outcome(job["operation"], job["folder"])
    count = library.faults_calls()
    found["struck"] = library.faults_struck().decode()
    library.faults_arm(b"", 0, 0, 0)
    if job["kind"] == COUNT:
        found["calls"] = [library.faults_name(number + 1).decode() for number in range(count)]
    return found


def _killed(library: Any, job: dict[str, Any]) -> dict[str, Any]:
    """What came of it in a fork, which tells nothing if it is killed as it shall be."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(here)
            os.write(there, json.dumps(_run(library, job)).encode())
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return dict(json.loads(data)) if data else {"how": "killed"}


def main() -> None:
    library = ctypes.CDLL(None)
    library.faults_struck.restype = ctypes.c_char_p
    library.faults_name.restype = ctypes.c_char_p
    library.faults_name.argtypes = [ctypes.c_long]
    library.faults_calls.restype = ctypes.c_long
    library.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_long, ctypes.c_long]
    warnings.simplefilter("ignore")  # of forks beside threads, too
    for line in sys.stdin:
        job = json.loads(line)
        may_die = job["kind"] == KILL or job["then"] > 0
        found = (_killed if may_die else _run)(library, job)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
