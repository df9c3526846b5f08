"""Counts of requests, as Prometheus reads them, of one worker and of all; and the access log.

What is counted is kept under the names that Prometheus gives it, so that counts of workers are
added without a thought. Prometheus asks one address and reaches any of the workers, and each has to
answer for all: so each writes its counts to a file of its own every other second, and reads those
of the others when it is asked. What a worker has counted stays when it ends.
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
    _WORKERS: "Workers that these counts are of.",
}


def sample(metric: str, **labels: object) -> str:
    """The name of a count. Values of labels are of the server's own words and need no quoting."""
    inner = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    return f"{metric}{{{inner}}}"


@lru_cache(maxsize=4096)
def _of_request(source: str, route: str, status: int) -> tuple[str, str, str]:
    """What counts requests, bytes and seconds."""
    return (
        sample(_REQUESTS, source=source, route=route, status=status),
        sample(_BYTES, source=source),
        sample(_SECONDS + "_sum", route=route),
    )


@dataclass(slots=True)
class Counts:
    """What one worker has counted, or several together."""

    samples: dict[str, float] = field(default_factory=dict)
    durations: dict[str, list[int]] = field(default_factory=dict)
    """By route: requests in each class of `BOUNDS`, and longer ones."""
    gauges: dict[str, float] = field(default_factory=dict)
    """What is now, and not since the start."""

    def grow(self, name: str, much: float = 1) -> None:
        """Count something."""
        self.samples[name] = self.samples.get(name, 0) + much

    def count(self, source: str, route: str, status: int, size: int, seconds: float) -> None:
        """One request is done."""
        samples, (requests, sent, took) = self.samples, _of_request(source, route, status)
        samples[requests] = samples.get(requests, 0) + 1
        samples[sent] = samples.get(sent, 0) + size
        samples[took] = samples.get(took, 0) + seconds
        self._class(route, bisect_left(BOUNDS, seconds), 1)

    def count_ready(self, source: str, count: int, size: int) -> None:
        """So many tiles were sent at once; they took less than the shortest class."""
        requests, sent, _ = _of_request(source, "tile", 200)
        self.grow(requests, count)
        self.grow(sent, size)
        self._class("tile", 0, count)

    def reloaded(self, source: str, outcome: str) -> None:
        """A source was opened again: ``ok`` or ``failed``."""
        self.grow(sample(_RELOADS, source=source, outcome=outcome))

    def _class(self, route: str, number: int, much: int) -> None:
        if route not in self.durations:
            self.durations[route] = [0] * (len(BOUNDS) + 1)
        self.durations[route][number] += much

    def add(self, other: Counts) -> None:
        """Take in what another has counted."""
        for name, much in other.samples.items():
            self.grow(name, much)
        for route, classes in other.durations.items():
            for number, much in enumerate(classes):
                self._class(route, number, much)
        for name, value in other.gauges.items():
            self.gauges[name] = self.gauges.get(name, 0) + value

    def lines(self) -> Iterator[str]:
        """All of it in the text format of Prometheus, less what each name means."""
        yield from (f"{name} {value}" for name, value in (self.samples | self.gauges).items())
        for route, classes in self.durations.items():
            totals = [*accumulate(classes)]
            for bound, total in zip((*BOUNDS, "+Inf"), totals, strict=True):
                yield f"{sample(_SECONDS + '_bucket', route=route, le=bound)} {total}"
            yield f"{sample(_SECONDS + '_count', route=route)} {totals[-1]}"


class Metrics:
    """What one worker measures."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.count = self.counts.count
        self.ready: Callable[[], dict[str, tuple[int, int]]] = dict
        """Tiles that were sent without a count of their own, and their bytes, by source."""
        self.watched: dict[str, tuple[str, Callable[[], float]]] = {}
        """Names, with what they mean and what they are now; those on ``_total`` only grow."""

    def now(self) -> Counts:
        """A copy of all that was counted, with the gauges of this moment."""
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
"""Between two writings."""


class WorkerCounts:
    """A folder with the counts of every worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = f"{os.getpid()}-{os.urandom(4).hex()}.json"

    def post(self, counts: Counts) -> None:
        """Write what this worker has counted, in place of what it wrote before."""
        part = self.folder / (self._own + ".part")
        part.write_text(json.dumps(asdict(counts)))
        part.replace(self.folder / self._own)

    def others(self) -> Iterator[Counts]:
        """What the other workers have written; of those that have ended without gauges."""
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
    """What is known of one request; nothing of a client's could forge a line."""

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

    def document(self) -> dict[str, object]:
        """What the log says of it."""
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
        of_request = getattr(record, "of", None)
        if of_request is None:
            message = without_secrets(record.getMessage())
            of_request = {"logger": record.name, "message": message}
        document |= of_request
        if record.exc_info:
            document["traceback"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(document)
