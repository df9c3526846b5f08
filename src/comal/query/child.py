"""The limited process of `run_isolated`: reads a request on stdin, writes an answer to stdout."""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
import time
from typing import Any, BinaryIO


def main() -> None:
    """Set the limits, then make the call; nothing heavy is imported before that."""
    with os.fdopen(os.dup(1), "wb") as out:
        # Output of libraries must not get into the answer.
        os.dup2(2, 1)
        data = sys.stdin.buffer.read()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            answer = _answer(data, out)
        except MemoryError:
            answer = _failure({"error": "LimitExceededError", "what": "no memory left"})
        out.write(answer)
    # Threads of a stopped query may still run; nothing is left to clean up.
    os._exit(0)


def _answer(data: bytes, out: BinaryIO) -> bytes:
    from comal.errors import ComalError  # noqa: PLC0415 - after the limits
    from comal.query.isolated import READY, RESULT, packed  # noqa: PLC0415

    # The parent wrote these bytes; the parts from the query are plain data.
    budget, function, args = pickle.loads(data)  # noqa: S301
    resource.setrlimit(resource.RLIMIT_AS, (budget.memory, budget.memory))
    spent = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (budget.cpu + spent, budget.cpu + spent + 1))
    out.write(READY)
    out.flush()
    try:
        return RESULT + packed(function(*args))
    except ComalError as error:
        return _failure(error.to_dict())


def _failure(document: dict[str, Any]) -> bytes:
    return b"E" + json.dumps(document).encode()


if __name__ == "__main__":
    main()
