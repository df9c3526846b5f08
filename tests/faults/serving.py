"""The process in which faults happen: forks for each job, so that imports are paid for once.

Standard input has a job per line, ``{"operation": "module:function", "folder": ..., "kind": ...,
"at": ...}``; standard output says what came of each.
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


def _run(library: Any, job: dict[str, Any], output: int) -> None:
    warnings.simplefilter("ignore")
    library.faults_arm(os.fsencode(job["folder"]), job["kind"], job["at"])
    found = _outcome(job["operation"], job["folder"])
    count = library.faults_calls()
    found["struck"] = library.faults_struck().decode()
    library.faults_arm(b"", 0, 0)
    if job["kind"] == 0:
        found["calls"] = [library.faults_name(number + 1).decode() for number in range(count)]
        found["modules"] = sorted(sys.modules)
    os.write(output, json.dumps(found).encode())


def _forked(library: Any, job: dict[str, Any]) -> dict[str, Any]:
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(here)
            _run(library, job, there)
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
    library.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_long]
    for line in sys.stdin:
        job = json.loads(line)
        importlib.import_module(job["operation"].partition(":")[0])  # once, not in each child
        found = _forked(library, job)
        for name in found.pop("modules", ()):
            # Imported here, the next job finds them.
            if name not in sys.modules and name != "__mp_main__":
                try:
                    importlib.import_module(name)
                except ImportError:
                    continue
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
