"""The log of requests: one line of JSON each, with nothing of a client's that could forge lines."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field

from comal.errors import without_secrets

LOGGER = logging.getLogger("comal.server.requests")

_LONGEST = 300


@dataclass(slots=True)
class Record:
    """What is known of one request."""

    method: str
    path: str
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    source: str = ""
    route: str = "none"
    status: int = 0
    bytes: int = 0
    seconds: float = 0.0
    failure: str | None = None
    """What happened, for the operator alone."""

    def line(self) -> str:
        """One line of JSON, ASCII only."""
        document = {
            "id": self.id,
            "method": self.method[:16],
            "path": self.path[:_LONGEST],
            "source": self.source or None,
            "route": self.route,
            "status": self.status,
            "bytes": self.bytes,
            "ms": round(self.seconds * 1000, 3),
        }
        if self.failure is not None:
            document["failure"] = without_secrets(self.failure)[:1000]
        return json.dumps(document)


def write(record: Record, which: str) -> None:
    """Log a request: ``all``, ``errors`` from status 500 on, or ``none``."""
    if which == "all" or (which == "errors" and record.status >= 500):
        level = logging.ERROR if record.status >= 500 else logging.INFO
        LOGGER.log(level, "%s", record.line())


def bug(error: Exception, record: Record) -> None:
    """Log what should not have happened, with its traceback."""
    LOGGER.error("request %s failed", record.id, exc_info=error)


class JsonFormatter(logging.Formatter):
    """Log lines as JSON: time, level, and the record of a request or a message."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        document: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
        }
        message = record.getMessage()
        if record.name == LOGGER.name and message.startswith("{"):
            document |= json.loads(message)
        else:
            document["logger"] = record.name
            document["message"] = without_secrets(message)
        if record.exc_info:
            document["traceback"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(document)
