"""An untrusted query, run in a process of its own with hard limits.

DuckDB's own limits do not always hold: constant folding took 20 GB under a limit of 512 MB, and
parsing 7 MB of text took 3.5 GB. So everything, including parsing, runs in a fresh interpreter
under limits of the operating system, and is killed when its time is up.
"""

from __future__ import annotations

import io
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pyarrow as pa

from comal import errors
from comal.errors import ComalError, InvalidInputError, LimitExceededError, QueryError, shown
from comal.limits import GIB

_CHILD = "comal.query.child"
_MOST = 1 << 62
READY = b"R"
RESULT = b"T"
FAILURE = b"E"
_MORE = "isolated=comal.query.Budget(memory=, cpu=, wall=) grants more; so does --trusted"
_START = 60.0
"""Seconds to wait for a process to start, on a machine under load."""
_CPU_OVER = -signal.SIGXCPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one isolated call. It can write no file at all.

    Raises
    ------
    InvalidInputError
        On creation: a limit that is not a positive number. A negative one would mean no limit.
    """

    memory: int = 2 * GIB
    """Bytes of address space."""
    cpu: int = 8
    """Seconds of processor time, all threads together."""
    wall: float = 5.0
    """Seconds after its start when the process is killed."""

    def __post_init__(self) -> None:
        for name, kinds in (("memory", int), ("cpu", int), ("wall", (int, float))):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < _MOST:
                raise InvalidInputError(
                    f"{name} is not a positive number",
                    found=shown(value),
                    expected="bytes" if name == "memory" else "seconds",
                )


REMOTE = Budget(cpu=30, wall=60.0)
"""The default limits of a call that waits for a network."""


def run_isolated(
    function: Callable[..., Any], *args: Any, budget: Budget | None = None, remote: bool = False
) -> Any:
    """Call ``function(*args)`` in a limited process and return its Arrow table.

    `function` is a plain function of an importable module and `args` can be pickled. With `remote`
    it gets the environment variables for access to storage, and more time.

    Raises
    ------
    LimitExceededError
        The call exceeded the budget.
    QueryError
        The process ended without an answer.
    ComalError
        Any error of comal that the call raised.
    """
    budget = budget or (REMOTE if remote else Budget())
    # Through a pipe to our own child, so that credentials are included.
    request = bytes(ForkingPickler.dumps((budget, function, args)))
    with subprocess.Popen(  # noqa: S603 - this interpreter, a module of ours, no shell
        [sys.executable, "-m", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Reading here must not buffer bytes for `communicate`.
        bufsize=0,
        env=_environment(remote=remote),
        close_fds=True,
    ) as child:
        try:
            answer = _exchange(child, request, budget)
        finally:
            child.kill()
    return _answer(answer, child.returncode, budget)


def _exchange(child: subprocess.Popen[bytes], request: bytes, budget: Budget) -> bytes:
    """Send the request, wait until the child has loaded its modules, then start its time."""
    assert child.stdin is not None
    assert child.stdout is not None
    # The exit status says why a child has died early.
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write(request)
    child.stdin = None
    started, _, _ = select.select([child.stdout], [], [], _START)
    if not started:
        raise LimitExceededError(
            "the query's process did not start", expected=f"within {_START:g} s"
        )
    if child.stdout.read(1) != READY:
        child.wait()
        return b""
    try:
        answer, _ = child.communicate(timeout=budget.wall)
    except subprocess.TimeoutExpired as error:
        raise LimitExceededError(
            "the query took too long", expected=f"at most {budget.wall:g} s", hint=_MORE
        ) from error
    return answer


_PLAIN = frozenset({"PATH", "LANG", "LD_LIBRARY_PATH"})
_OF_STORAGE = re.compile(
    r"(AWS|GOOGLE|AZURE|HF|COMAL|IDENTITY|IMDS|MSI)_.*|HOME|SERVICE_ACCOUNT|SSL_CERT_(FILE|DIR)"
    r"|(?i:(HTTPS?|ALL|NO)_PROXY)"
)
"""Variables for credentials, proxies and certificates of storage."""


def _environment(*, remote: bool) -> dict[str, str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if key in _PLAIN or (remote and _OF_STORAGE.fullmatch(key))
    }
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        # Pools that reserve address space in advance would use up the limit at once.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _answer(answer: bytes, code: int, budget: Budget) -> Any:
    kind, body = answer[:1], answer[1:]
    if kind == RESULT and code == 0:
        with pa.ipc.open_stream(io.BytesIO(body)) as reader:
            return reader.read_all()
    if kind == FAILURE:
        raise _rebuild(json.loads(body))
    if code == _CPU_OVER:
        raise LimitExceededError(
            "the query took too much processor time",
            expected=f"at most {budget.cpu} s",
            hint=_MORE,
        )
    if code in {-signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV}:
        raise LimitExceededError(
            "the query needs more memory than it may take",
            expected=f"at most {budget.memory} bytes",
            hint=_MORE,
        )
    raise QueryError("the query's process ended without an answer", found=f"exit status {code}")


def _rebuild(document: Mapping[str, Any]) -> ComalError:
    """The child's error, from plain data: nothing from a broken child is unpickled."""
    kind = getattr(errors, str(document.get("error")), None)
    if not (isinstance(kind, type) and issubclass(kind, ComalError)):
        kind = QueryError
    named: dict[str, Any] = {
        key: document.get(key) for key in ("where", "found", "expected", "hint")
    }
    return kind(str(document.get("what")), **named)


def select_isolated(
    sql: str,
    params: Mapping[str, Any] | None = None,
    *,
    tables: Mapping[str, Any] | None = None,
    max_rows: int | None = None,
    budget: Budget | None = None,
) -> Any:
    """`Session.select` over Arrow tables in a limited process."""
    sent = {name: packed(table) for name, table in (tables or {}).items()}
    return run_isolated(_select, sql, dict(params or {}), sent, max_rows, budget=budget)


def packed(table: Any) -> bytes:
    """A table as bytes, for a pipe."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _select(
    sql: str, params: Mapping[str, Any], tables: Mapping[str, bytes], rows: int | None
) -> Any:
    from comal.query.locked import engine  # noqa: PLC0415 - the parent never needs DuckDB for this

    opened = {name: pa.ipc.open_stream(data).read_all() for name, data in tables.items()}
    return engine().select(sql, params, tables=opened, max_rows=rows)
