"""A server process: uvicorn around the application, in one worker or several.

Workers are processes that create the application themselves, from plain data that their parent
passes on; so they share nothing, and a replacement starts like the first one.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import socket
import sys
import tempfile
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from comal.errors import ConflictError, MissingExtraError
from comal.server.application import Application
from comal.server.metrics import JsonFormatter, WorkerCounts
from comal.server.settings import ProcessSettings

_SKIPPED = "VRT,GTI,WMS,WMTS,WCS,HTTP,STACIT,STACTA,DAAS,EEDAI,PLMosaic,NGW,OGCAPI,DERIVED"
"""Drivers of GDAL that follow references to other files and hosts: workers run without them."""
_FILES = 65_536
"""Files and connections that the process requests."""
_SPARE = 512
"""MiB of address space that stacks and buffers of threads reserve without using it."""


def worker_application(settings: ProcessSettings, board: str) -> Application:
    """The application of a worker."""
    log_to_stderr()
    if settings.max_memory is not None:
        limit_memory(2 * settings.max_memory + _SPARE)
    application = Application(settings.sources, settings.settings)
    application.pages.board = WorkerCounts(Path(board))
    # Modules and tables stay: garbage collections need not visit them.
    gc.collect()
    gc.freeze()
    return application


def limit_memory(mebibytes: int) -> None:
    """Limit the memory of this process; allocations beyond it raise MemoryError."""
    with suppress(ImportError):  # there is none on Windows
        import resource  # noqa: PLC0415

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (mebibytes * 1024 * 1024, hard))


def log_to_stderr() -> None:
    """Send the log and the warnings of readers to standard error, as lines of JSON."""
    logger = logging.getLogger("comal.server")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        logger.setLevel(logging.INFO)
        logging.captureWarnings(True)
        for one in (logger, logging.getLogger("py.warnings")):
            one.addHandler(handler)
            one.propagate = False


def run(settings: ProcessSettings) -> None:
    """Serve until the process is told to stop; finishes the requests in progress."""
    unhide_modules()
    allow_files()
    os.environ.setdefault("GDAL_SKIP", _SKIPPED)
    from comal.server import uvicornserver  # noqa: PLC0415 - optional

    with tempfile.TemporaryDirectory(prefix="comal-serve-") as board:
        # Workers get the settings through a pipe: URLs may hold secrets, which everybody could read
        # in an environment.
        make = partial(worker_application, settings, board)
        config = uvicornserver.configured(make, settings)
        listening = config.bind_socket()
        drop_stalled_clients(listening, settings.settings.limits.stalled)
        uvicornserver.Supervisor(config, [listening], settings.max_memory).run()


def drop_stalled_clients(listening: socket.socket, seconds: float) -> None:
    """Let the system close connections whose client reads nothing of its answer for `seconds`.

    No server has an option for that, but sockets have one, which accepted connections inherit from
    the listening socket. Linux only.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = round(seconds * 1000)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def unhide_modules() -> None:
    """Make modules importable again that the command line hides because short commands need none.

    Compiled modules that import a hidden one fail instead of noticing that it is missing.
    """
    modules: dict[str, Any] = sys.modules
    for name in [name for name, module in modules.items() if module is None]:
        del modules[name]


def allow_files() -> None:
    """Raise the limit of open files and connections to what the system allows, workers included.

    Commonly it is 1 024 unless a process raises it.
    """
    with suppress(ImportError, OSError, ValueError):  # there is no such limit on Windows
        import resource  # noqa: PLC0415

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_installed() -> None:
    """Raise if uvicorn is not installed, before anything is printed or opened."""
    if find_spec("uvicorn") is None:
        raise MissingExtraError.of("uvicorn", "server", "comal serve")


def check_address(host: str, port: int) -> None:
    """Raise if nobody can listen on the address, before anything is printed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            busy = getattr(error, "errno", None) in (errno.EADDRINUSE, errno.EACCES)
            raise ConflictError(
                "cannot listen on this address",
                where=f"{host}:{port}",
                found=str(error),
                hint="name an address of this machine" if not busy else "choose another --port",
            ) from error
