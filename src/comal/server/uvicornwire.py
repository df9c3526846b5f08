"""uvicorn's HTTP protocol, with plain requests for tiles answered where their bytes arrive.

Also what uvicorn lacks: headers must come in time, not only the first byte of them. Imported only
where uvicorn runs.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from comal.server.application import Application
from comal.server.plainwire import LONGEST, PlainWire, is_whole_head


class TileProtocol(H11Protocol):
    """A connection. Its parameters are those of uvicorn."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._plain: PlainWire | None = None
        app: Any = self.app
        if isinstance(app, Application):
            self._plain = app.plain
        # Whether all that uvicorn was given are whole requests, so that the next byte begins one.
        self._at_border = True
        # When the last answer was complete, or the connection was made.
        self._done = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come; its first request must be here in time."""
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
        """The answer that uvicorn has sent is whole."""
        self._done = monotonic()
        super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Send the client away, unless something was answered since the timer was set."""
        left = self._left()
        if self.transport.get_write_buffer_size():
            # It takes its answer slowly; how slowly it may is looked after by the socket.
            left = self.timeout_keep_alive
        if left > 0:
            self._wait(left)
        elif not self.transport.is_closing():
            self.transport.close()

    def _is_answered(self) -> bool:
        # None until the first request, whatever uvicorn's annotation says.
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
