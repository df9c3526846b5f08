"""Counts of requests for Prometheus, of one worker and of all workers; and the access log.

Counts have the names of Prometheus' samples, so that those of several workers are simply added.
Prometheus requests one address and reaches any of the workers, which has to answer for all: each
worker writes its counts to its own file every other second, and reads the files of the others at a
request. The counts of a worker remain when it ends.
"""

from __future__ import annotations

import json
import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from comal.errors import without_secrets

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper edges of the classes of duration, in seconds."""
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_REQUESTS, _BYTES, _RELOADS = (
    "comal_requests_total",
    "comal_sent_bytes_total",
    "comal_reloads_total",
)
_SECONDS, _WORKERS = "comal_request_seconds", "comal_workers"
_ABOUT = {
    _REQUESTS: "Requests answered.",
    _BYTES: "Bytes of bodies.",
    _RELOADS: "Sources opened again.",
    _SECONDS: "Time until the answer was complete.",
    _WORKERS: "Workers that are counted here.",
}


def sample(metric: str, **labels: object) -> str:
    """The name of a count. Values of labels are chosen by the server and need no quoting."""
    inner = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    return f"{metric}{{{inner}}}"


@lru_cache(maxsize=4096)
def _of_request(source: str, route: str, status: int) -> tuple[str, str, str]:
    """The names of the counts of requests, bytes and seconds."""
    return (
        sample(_REQUESTS, source=source, route=route, status=status),
        sample(_BYTES, source=source),
        sample(_SECONDS + "_sum", route=route),
    )


@dataclass(slots=True)
class Counts:
    """Counts of one worker, or of several together."""

    samples: dict[str, float] = field(default_factory=dict)
    durations: dict[str, list[int]] = field(default_factory=dict)
    """By route: requests in each class of `BOUNDS`, and longer ones."""
    gauges: dict[str, float] = field(default_factory=dict)
    """Values of the moment, which are not totals since the start."""

    def grow(self, name: str, much: float = 1) -> None:
        """Increase a count."""
        self.samples[name] = self.samples.get(name, 0) + much

    def count(self, source: str, route: str, status: int, size: int, seconds: float) -> None:
        """Count a finished request."""
        samples, (requests, sent, took) = self.samples, _of_request(source, route, status)
        samples[requests] = samples.get(requests, 0) + 1
        samples[sent] = samples.get(sent, 0) + size
        samples[took] = samples.get(took, 0) + seconds
        self._class(route, bisect_left(BOUNDS, seconds), 1)

    def count_ready(self, source: str, count: int, size: int) -> None:
        """Count tiles that were sent from memory, in the shortest class of duration."""
        requests, sent, _ = _of_request(source, "tile", 200)
        self.grow(requests, count)
        self.grow(sent, size)
        self._class("tile", 0, count)

    def reloaded(self, source: str, outcome: str) -> None:
        """Count that a source was opened again: ``ok`` or ``failed``."""
        self.grow(sample(_RELOADS, source=source, outcome=outcome))

    def _class(self, route: str, number: int, much: int) -> None:
        if route not in self.durations:
            self.durations[route] = [0] * (len(BOUNDS) + 1)
        self.durations[route][number] += much

    def add(self, other: Counts) -> None:
        """Add the counts of another worker."""
        for name, much in other.samples.items():
            self.grow(name, much)
        for route, classes in other.durations.items():
            for number, much in enumerate(classes):
                self._class(route, number, much)
        for name, value in other.gauges.items():
            self.gauges[name] = self.gauges.get(name, 0) + value

    def lines(self) -> Iterator[str]:
        """All counts in the text format of Prometheus, without HELP and TYPE."""
        yield from (f"{name} {value}" for name, value in (self.samples | self.gauges).items())
        for route, classes in self.durations.items():
            totals = [*accumulate(classes)]
            for bound, total in zip((*BOUNDS, "+Inf"), totals, strict=True):
                yield f"{sample(_SECONDS + '_bucket', route=route, le=bound)} {total}"
            yield f"{sample(_SECONDS + '_count', route=route)} {totals[-1]}"


class Metrics:
    """The measurements of one worker."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.count = self.counts.count
        self.ready: Callable[[], dict[str, tuple[int, int]]] = dict
        """Number and bytes of the tiles that were sent from memory, by source."""
        self.watched: dict[str, tuple[str, Callable[[], float]]] = {}
        """Help text and current value by name; names that end in ``_total`` only grow."""

    def now(self) -> Counts:
        """A copy of all counts, with the current gauges."""
        found = Counts()
        found.add(self.counts)
        for source, (count, size) in self.ready().items():
            found.count_ready(source, count, size)
        for name, (_, value) in self.watched.items():
            kept = found.samples if name.endswith("_total") else found.gauges
            kept[name] = float(value())
        return found

    def text(self, others: Iterable[Counts] = ()) -> bytes:
        """The counts in the text format of Prometheus."""
        together, workers = self.now(), 1
        for one in others:
            together.add(one)
            workers += bool(one.gauges)
        together.gauges[_WORKERS] = workers
        about = _ABOUT | {name: text for name, (text, _) in self.watched.items()}
        families: dict[str, list[str]] = {name: [] for name in about}
        for line in together.lines():
            name = line.partition(" ")[0].partition("{")[0]
            families[_SECONDS if name.startswith(_SECONDS) else name].append(line)
        found = []
        for name, lines in families.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            kind = "histogram" if name == _SECONDS else kind
            found += [f"# HELP {name} {about[name]}", f"# TYPE {name} {kind}", *lines]
        return "\n".join([*found, ""]).encode()


SECONDS = 2.0
"""Seconds between two writes."""


class WorkerCounts:
    """A folder with the counts of every worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = f"{os.getpid()}-{os.urandom(4).hex()}.json"

    def post(self, counts: Counts) -> None:
        """Write the counts of this worker, replacing its earlier ones."""
        part = self.folder / (self._own + ".part")
        part.write_text(json.dumps(asdict(counts)))
        part.replace(self.folder / self._own)

    def others(self) -> Iterator[Counts]:
        """The counts of the other workers; without gauges for those that have ended."""
        for path in sorted(self.folder.glob("*.json")):
            if path.name != self._own:
                found = Counts(**json.loads(path.read_text()))
                if not _is_alive(int(path.name.partition("-")[0])):
                    found.gauges = {}
                yield found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# -- access log ------------------------------------------------------------------------------------


LOGGER = logging.getLogger("comal.server.requests")

_LONGEST = 300


@dataclass(slots=True)
class AccessRecord:
    """One request for the log; no value from the client can forge a line."""

    method: str
    path: str
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    source: str = ""
    route: str = "none"
    status: int = 0
    bytes: int = 0
    seconds: float = 0.0
    failure: str | None = None
    """The error, for the operator only."""

    def document(self) -> dict[str, object]:
        """The fields of the log entry."""
        document: dict[str, object] = {
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
        return document


def log_access(record: AccessRecord, which: str) -> None:
    """Log a request: ``all``, ``errors`` from status 500 on, or ``none``."""
    if which == "all" or (which == "errors" and record.status >= 500):
        level = logging.ERROR if record.status >= 500 else logging.INFO
        document = record.document()
        LOGGER.log(level, "%s", json.dumps(document), extra={"of": document})


def log_bug(error: Exception, record: AccessRecord) -> None:
    """Log an unexpected error, with its traceback."""
    LOGGER.error("request %s failed", record.id, exc_info=error)


class JsonFormatter(logging.Formatter):
    """Log lines as JSON: time, level, and the record of a request or a message."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        document: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
        }
        of_request = getattr(record, "of", None)
        if of_request is None:
            message = without_secrets(record.getMessage())
            of_request = {"logger": record.name, "message": message}
        document |= of_request
        if record.exc_info:
            document["traceback"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(document)
