"""A server process: granian or uvicorn around the application.

Workers are processes that make the application themselves, from what stands in one variable of
the environment; so they share nothing, and one that is recycled starts as the first did.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from comal.errors import ConflictError, InvalidInputError, MissingExtraError
from comal.server import journal
from comal.server.application import Application
from comal.server.board import Board
from comal.server.making import app
from comal.server.settings import RequestLimits

VARIABLE = "COMAL_SERVE"
FACTORY = "comal.server.running:from_environment"
SERVERS = ("granian", "uvicorn")

_SKIPPED = "VRT,GTI,WMS,WMTS,WCS,HTTP,STACIT,STACTA,DAAS,EEDAI,PLMosaic,NGW,OGCAPI,DERIVED"
"""Drivers of GDAL that follow references to other files and hosts: no worker has them."""
_STOP_SECONDS = 30
_FILES = 65_536
"""Files and connections that are asked for."""
_LOOKED_AT = 2
"""Seconds between two looks at how much memory workers take."""
_SPARE = 512
"""MiB of address space that stacks and buffers of threads take and do not fill."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a server process does."""

    sources: Mapping[str, Any]
    """Names and hrefs, or objects with an ``href`` and options."""
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    server: str = "granian"
    idle_seconds: float = 5.0
    """How long a client may take to send its headers, and a connection may lie idle."""
    max_memory: int | None = None
    """MiB above which a worker is replaced, once it has finished what it does; at twice that, work
    that wants more is refused. None is never. granian only."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `comal.server.app`."""


def from_environment() -> Application:
    """The application of a worker."""
    document = json.loads(os.environ[VARIABLE])
    log_to_stderr()
    if document["max_memory"] is not None:
        limit_memory(2 * document["max_memory"] + _SPARE)
    options = dict(document["options"])
    limits = RequestLimits(**options.pop("limits", {}))
    application = app(document["sources"], limits=limits, **options)
    if document["board"] is not None:
        application.board = Board(Path(document["board"]))
    application.on_start = lambda: send_away_who_takes_nothing(limits.stalled)
    # Modules and tables that stay need not be looked at by every collection.
    gc.collect()
    gc.freeze()
    return application


def limit_memory(mebibytes: int) -> None:
    """Let this process have no more memory of its own; what wants more gets a MemoryError."""
    with suppress(ImportError):  # there is none on Windows
        import resource  # noqa: PLC0415

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (mebibytes * 1024 * 1024, hard))


def send_away_who_takes_nothing(seconds: float) -> None:
    """Let the system end connections whose client takes nothing of its answer for so long.

    No server has an option for that, but sockets have one, which those that are accepted inherit
    from the one that listens. Linux only.
    """
    folder = Path("/proc/self/fd")
    if not hasattr(socket, "TCP_USER_TIMEOUT") or not folder.exists():
        return
    for number in sorted(int(path.name) for path in folder.iterdir()):
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
            if one.family != socket.AF_UNIX and one.getsockopt(
                socket.SOL_SOCKET, socket.SO_ACCEPTCONN
            ):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))


def log_to_stderr() -> None:
    """Send the log, and what readers warn of, to standard error, a line of JSON each."""
    logger = logging.getLogger("comal.server")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(journal.JsonFormatter())
        logger.setLevel(logging.INFO)
        logging.captureWarnings(True)
        for one in (logger, logging.getLogger("py.warnings")):
            one.addHandler(handler)
            one.propagate = False


def _own_log(name: str) -> dict[str, Any]:
    """What a server says under this name, in the same form."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "comal.server.journal.JsonFormatter"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "loggers": {name: {"handlers": ["stderr"], "level": "WARNING", "propagate": False}},
    }


def run(plan: Plan) -> None:
    """Serve until the process is told to stop; requests that are under way are finished.

    Raises
    ------
    InvalidInputError
        A server that is not known.
    ConflictError
        The address is taken.
    MissingExtraError
        The server is not installed.
    """
    check_server(plan.server)
    check_address(plan.host, plan.port)
    show_modules()
    allow_files()
    os.environ.setdefault("GDAL_SKIP", _SKIPPED)
    alone = plan.workers == 1 and plan.max_memory is None
    shared = nullcontext() if alone else tempfile.TemporaryDirectory(prefix="comal-serve-")
    with shared as board:
        os.environ[VARIABLE] = json.dumps(
            {
                "sources": dict(plan.sources),
                "options": dict(plan.options),
                "max_memory": plan.max_memory,
                "board": board,
            }
        )
        (_run_granian if plan.server == "granian" else _run_uvicorn)(plan)


def show_modules() -> None:
    """Let modules be found again that the command line hides, as no short command needs them.

    Compiled modules that look for a hidden one fail instead of seeing that there is none.
    """
    modules: dict[str, Any] = sys.modules
    for name in [name for name, module in modules.items() if module is None]:
        del modules[name]


def allow_files() -> None:
    """Let this process and its workers hold as many files and connections as the system allows.

    Commonly 1 024 are allowed unless a process asks for more.
    """
    with suppress(ImportError, OSError, ValueError):  # there is no such limit on Windows
        import resource  # noqa: PLC0415

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_server(name: str) -> None:
    """Refuse a server that is not installed, before anything is told or opened.

    Raises
    ------
    InvalidInputError
        A server that is not known.
    MissingExtraError
        The server is not installed.
    """
    if name not in SERVERS:
        raise InvalidInputError("no such server", found=name, expected=", ".join(SERVERS))
    if find_spec(name) is None:
        raise MissingExtraError.of(name, "server", f"comal serve --server {name}")


def check_address(host: str, port: int) -> None:
    """Refuse an address that somebody else listens on, before workers start.

    Raises
    ------
    ConflictError
        It is taken, or no address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ConflictError(
                "cannot listen here",
                where=f"{host}:{port}",
                found=str(error),
                hint="choose another --port",
            ) from error


def _run_granian(plan: Plan) -> None:
    try:
        from granian.constants import HTTPModes, Interfaces  # noqa: PLC0415 - optional
        from granian.http import HTTP1Settings  # noqa: PLC0415
        from granian.log import LogLevels  # noqa: PLC0415

        from comal.server.granianprocess import Supervisor  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError.of("granian", "server", "comal serve") from error
    limits = RequestLimits(**plan.options.get("limits", {}))
    Supervisor(
        FACTORY,
        address=plan.host,
        port=plan.port,
        interface=Interfaces.RSGI,
        workers=plan.workers,
        factory=True,
        websockets=False,
        http=HTTPModes.http1,  # else who connects and says nothing is waited for without end
        # Slow and silent clients: headers must come whole, in time and within the limits. The time
        # for them begins when the answer before them is sent.
        http1_settings=HTTP1Settings(
            header_read_timeout=round(plan.idle_seconds * 1000),
            max_buffer_size=max(8192, limits.url_bytes + limits.header_bytes + 8192),
        ),
        respawn_failed_workers=True,
        workers_max_rss=plan.max_memory,
        rss_sample_interval=_LOOKED_AT,
        workers_kill_timeout=_STOP_SECONDS,
        log_level=LogLevels.warning,
        log_dictconfig=_own_log("_granian"),
    ).serve()


def _run_uvicorn(plan: Plan) -> None:
    try:
        import uvicorn  # noqa: PLC0415 - optional

        from comal.server.uvicornwire import TileProtocol  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError.of("uvicorn", "server", "comal serve --server uvicorn") from error
    limits = RequestLimits(**plan.options.get("limits", {}))
    uvicorn.run(
        FACTORY,
        factory=True,
        http=TileProtocol,
        host=plan.host,
        port=plan.port,
        workers=plan.workers,
        # Its warnings are about bytes that are no requests, one for each.
        log_level="error",
        log_config=_own_log("uvicorn"),
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(plan.idle_seconds)),
        timeout_graceful_shutdown=_STOP_SECONDS,
        h11_max_incomplete_event_size=limits.url_bytes + limits.header_bytes + 8192,
        ws="none",
    )
