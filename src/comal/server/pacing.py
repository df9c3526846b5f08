"""Sending a long body no faster than the client takes it.

granian takes every block that it is given at once and keeps it until the client has it, so a client
that reads slowly would have the whole body kept in memory. Linux tells how much of what was sent
still lies in the buffer of a socket; the next block is made when most of that is gone.
"""

from __future__ import annotations

import array
import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

_FOLDER = Path("/proc/self/fd")
_SIOCOUTQ = 0x5411
_PART = 8
"""A buffer is empty enough when so small a part of it is full."""
_SHORTEST, _LONGEST = 0.001, 0.05


class Pace:
    """The connection of a client.

    Parameters
    ----------
    client
        Its address and port, as granian writes them; of another form, or on a system that does not
        tell, nothing is waited for.
    """

    def __init__(self, client: str) -> None:
        self._socket = _found(client)

    async def drained(self) -> None:
        """Wait until the client has taken most of what was sent."""
        if self._socket is None:
            return
        room = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // _PART
        seconds = _SHORTEST
        await asyncio.sleep(0)
        while _waiting(self._socket) > room:
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, _LONGEST)

    def close(self) -> None:
        """Let go of the socket, which stays open for the one whose it is."""
        if self._socket is not None:
            self._socket.close()


def _waiting(one: socket.socket) -> int:
    """Bytes that were sent and not yet taken."""
    import fcntl  # noqa: PLC0415 - there is none on Windows

    count = array.array("i", [0])
    fcntl.ioctl(one, _SIOCOUTQ, count)
    return count[0]


def _found(client: str) -> socket.socket | None:
    host, _, port = client.rpartition(":")
    if not _FOLDER.exists() or not port.isdigit():
        return None
    wanted = (host.strip("[]"), int(port))
    for path in _FOLDER.iterdir():
        with suppress(OSError):
            one = socket.socket(fileno=os.dup(int(path.name)))
            if one.family != socket.AF_UNIX and one.getpeername()[:2] == wanted:
                return one
            one.close()
    return None
