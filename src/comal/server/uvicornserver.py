"""Extends uvicorn by a protocol that answers plain requests for tiles, and by a supervisor.

Imported only if uvicorn runs.
"""

from __future__ import annotations

import asyncio
import mmap
import socket
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from comal.limits import MIB
from comal.server.application import Application
from comal.server.readyresponses import LONGEST, PlainRequests, is_whole_head
from comal.server.settings import ProcessSettings

_STOP_SECONDS = 30
_LOG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "comal.server.metrics.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {"uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False}},
}
"""The log of uvicorn in the form of ours."""


def configured(make: Callable[[], Application], settings: ProcessSettings) -> uvicorn.Config:
    """The configuration of uvicorn; each worker calls `make` for its application."""
    limits = settings.settings.limits
    return uvicorn.Config(
        make,
        factory=True,
        http=TileProtocol,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        # It warns of each invalid request.
        log_level="error",
        log_config=_LOG,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(settings.idle_seconds)),
        timeout_graceful_shutdown=_STOP_SECONDS,
        h11_max_incomplete_event_size=limits.url_bytes + limits.header_bytes + 8192,
        ws="none",
    )


class Supervisor(Multiprocess):
    """Starts workers, and replaces those that end or use too much memory.

    A successor serves before the worker above `max_memory` MiB is told to stop.
    """

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], max_memory: int | None
    ) -> None:
        super().__init__(config, sockets)
        self._max_memory = max_memory
        self._retired: list[Process] = []

    def keep_subprocess_alive(self) -> None:
        """Called every half second."""
        super().keep_subprocess_alive()
        self._retired = [old for old in self._retired if old.process.is_alive()]
        if self._max_memory is None:
            return
        for index, old in enumerate(self.processes):
            if old.pid is not None and resident_memory(old.pid) > self._max_memory:
                self._replace(index, old)

    def _replace(self, index: int, old: Process) -> None:
        new = Process(self.config, self.sockets)
        new.start()
        if new.wait_until_ready(self.config.timeout_worker_healthcheck, self.should_exit):
            self.processes[index] = new
            old.terminate()
            self._retired.append(old)
        else:
            new.kill()
            new.join()

    def terminate_all(self) -> None:
        """Tell all workers to stop, and close the listening sockets."""
        for one in self.sockets:
            one.close()
        super().terminate_all()

    def join_all(self) -> None:
        """Wait for all workers, including replaced ones."""
        super().join_all()
        for old in self._retired:
            old.join()


def resident_memory(pid: int) -> float:
    """Resident memory of a process in MiB, 0 if the system does not report it."""
    try:
        words = Path(f"/proc/{pid}/statm").read_text("ascii").split()
    except OSError:
        return 0.0
    return int(words[1]) * mmap.PAGESIZE / MIB


class TileProtocol(H11Protocol):
    """A connection. Its parameters are those of uvicorn.

    Plain requests for tiles are answered as soon as their bytes arrive. The timeout is for complete
    headers, not only for their first byte.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._plain: PlainRequests | None = None
        app: Any = self.app
        if isinstance(app, Application):
            self._plain = app.plain
        # Whether uvicorn has received only complete requests, so that the next byte begins one.
        self._at_border = True
        # When the last answer was completed, or the connection was made.
        self._done = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer: the first request must arrive in time."""
        super().connection_made(transport)
        self._done = monotonic()
        self._wait(self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        """Answer a plain request; leave anything else to uvicorn."""
        if self._at_border and self._plain is not None and len(data) <= LONGEST and self._is_idle():
            answer = self._plain.answer(data)
            if answer is not None:
                self._done = monotonic()
                self.transport.writelines(answer)
                return
        self._at_border = self._at_border and is_whole_head(data)
        super().data_received(data)  # cancels the timer
        if self.timeout_keep_alive_task is None and self._is_answered():
            self._wait(self._left())

    def on_response_complete(self) -> None:
        """Note when uvicorn has sent an answer completely."""
        self._done = monotonic()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Disconnect the client, unless something was answered since the timer was set."""
        left = self._left()
        if self.transport.get_write_buffer_size():
            # The client reads its answer slowly; the socket option limits how slowly.
            left = self.timeout_keep_alive
        if left > 0:
            self._wait(left)
        elif not self.transport.is_closing():
            self.transport.close()

    def _is_answered(self) -> bool:
        # None until the first request, despite uvicorn's annotation.
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def _is_idle(self) -> bool:
        return self._is_answered() and not self.flow.write_paused

    def _left(self) -> float:
        return self.timeout_keep_alive - (monotonic() - self._done)

    def _wait(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            max(0.0, seconds), self.timeout_keep_alive_handler
        )
