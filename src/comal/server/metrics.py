"""Counts of requests, as Prometheus reads them, of one worker and of all; and the access log.

Requests are counted in plain dictionaries, which costs a tile a fraction of a microsecond; the
names and shapes of Prometheus come about when somebody asks. Prometheus asks one address and
reaches any of the workers, and each has to answer for all: so each writes its counts to a file of
its own every other second, and reads those of the others when it is asked. What a worker has
counted stays when it ends.
"""

from __future__ import annotations

import json
import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from comal.errors import MissingExtraError, without_secrets

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper edges of the classes of duration, in seconds."""

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_CLASSES = len(BOUNDS) + 1


@dataclass(slots=True)
class Counts:
    """What one worker has counted, or several together."""

    requests: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """By source, route and status."""
    bytes: dict[str, int] = field(default_factory=dict)
    durations: dict[str, list[int]] = field(default_factory=dict)
    """By route: requests in each class of `BOUNDS`, and longer ones."""
    seconds: dict[str, float] = field(default_factory=dict)
    reloads: dict[tuple[str, str], int] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    """Other counts, by the name of the metric."""
    gauges: dict[str, float] = field(default_factory=dict)
    """What is now, and not since the start."""

    def count(self, source: str, route: str, status: int, size: int, seconds: float) -> None:
        """One request is done."""
        key = (source, route, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        self.bytes[source] = self.bytes.get(source, 0) + size
        classes = self.durations.get(route)
        if classes is None:
            classes = self.durations[route] = [0] * _CLASSES
        classes[bisect_left(BOUNDS, seconds)] += 1
        self.seconds[route] = self.seconds.get(route, 0.0) + seconds

    def add(self, other: Counts) -> None:
        """Take in what another has counted."""
        for name in ("requests", "bytes", "seconds", "reloads", "totals", "gauges"):
            _sum(getattr(self, name), getattr(other, name))
        for route, classes in other.durations.items():
            before = self.durations.get(route, [0] * _CLASSES)
            self.durations[route] = [a + b for a, b in zip(before, classes, strict=True)]


def _sum(own: dict[Any, Any], given: dict[Any, Any]) -> None:
    for key, value in given.items():
        own[key] = own.get(key, 0) + value


class Metrics:
    """What one worker metrics."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.count = self.counts.count
        self.ready: Callable[[], dict[str, tuple[int, int]]] = dict
        """Tiles that were sent without a count of their own, and their bytes, by source."""
        self.counters: dict[str, tuple[str, Callable[[], float]]] = {}
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        """Names, with what they mean and what they are now; counters only grow."""

    def reloaded(self, source: str, outcome: str) -> None:
        """A source was opened again: ``ok`` or ``failed``."""
        _sum(self.counts.reloads, {(source, outcome): 1})

    def now(self) -> Counts:
        """A copy of all that was counted, with the gauges of this moment."""
        found = Counts()
        found.add(self.counts)
        for source, (count, size) in self.ready().items():
            # These took less than the shortest class.
            short = [count, *[0] * (_CLASSES - 1)]
            key = (source, "tile", 200)
            found.add(Counts({key: count}, {source: size}, {"tile": short}))
        found.totals = {name: float(value()) for name, (_, value) in self.counters.items()}
        found.gauges = {name: float(value()) for name, (_, value) in self.gauges.items()}
        return found

    def text(self, others: Iterable[Counts] = ()) -> bytes:
        """The counts in the text format of Prometheus."""
        try:
            from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415
        except ImportError as error:
            raise MissingExtraError.of("prometheus-client", "server", "/metrics") from error
        together = self.now()
        workers = 1
        for one in others:
            together.add(one)
            workers += bool(one.gauges)
        registry = CollectorRegistry()
        collector: Any = _Collector(together, self, workers)
        registry.register(collector)
        return bytes(generate_latest(registry))


@dataclass(frozen=True, slots=True, eq=False)  # registries keep it in a set
class _Collector:
    """Counts as prometheus-client wants them."""

    counts: Counts
    metrics: Metrics
    workers: int

    def collect(self) -> Iterator[Any]:
        """The metric families."""
        from prometheus_client import core  # noqa: PLC0415 - optional

        counts = self.counts
        requests = core.CounterMetricFamily(
            "comal_requests", "Requests answered.", labels=("source", "route", "status")
        )
        for (source, route, status), count in counts.requests.items():
            requests.add_metric((source, route, str(status)), count)
        sent = core.CounterMetricFamily("comal_sent_bytes", "Bytes of bodies.", labels=("source",))
        for source, size in counts.bytes.items():
            sent.add_metric((source,), size)
        reloads = core.CounterMetricFamily(
            "comal_reloads", "Sources opened again.", labels=("source", "outcome")
        )
        for place, count in counts.reloads.items():
            reloads.add_metric(place, count)
        yield from (requests, sent, self._histogram(core), reloads)
        for name, (text, _) in self.metrics.counters.items():
            yield core.CounterMetricFamily(name, text, value=counts.totals[name])
        for name, (text, _) in self.metrics.gauges.items():
            yield core.GaugeMetricFamily(name, text, value=counts.gauges[name])
        text = "Workers that these counts are of."
        yield core.GaugeMetricFamily("comal_workers", text, value=self.workers)

    def _histogram(self, core: Any) -> Any:
        family = core.HistogramMetricFamily(
            "comal_request_seconds", "Time until the answer was complete.", labels=("route",)
        )
        for route, classes in self.counts.durations.items():
            total, buckets = 0, []
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), classes, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric((route,), buckets, self.counts.seconds.get(route, 0.0))
        return family


SECONDS = 2.0
"""Between two writings."""
_PAIRED = ("requests", "reloads")
"""Tables whose keys are tuples, which JSON has not."""


class WorkerCounts:
    """A folder with the counts of every worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = f"{os.getpid()}-{os.urandom(4).hex()}.json"

    def post(self, counts: Counts) -> None:
        """Write what this worker has counted, in place of what it wrote before."""
        document: dict[str, Any] = asdict(counts)
        for name in _PAIRED:
            document[name] = [[list(key), value] for key, value in document[name].items()]
        part = self.folder / (self._own + ".part")
        part.write_text(json.dumps(document))
        part.replace(self.folder / self._own)

    def others(self) -> Iterator[Counts]:
        """What the other workers have written; of those that have ended without gauges."""
        for path in sorted(self.folder.glob("*.json")):
            if path.name != self._own:
                document = json.loads(path.read_text())
                for name in _PAIRED:
                    document[name] = {tuple(key): value for key, value in document[name]}
                if not _is_alive(int(path.name.partition("-")[0])):
                    document["gauges"] = {}
                yield Counts(**document)


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


def log_access(record: AccessRecord, which: str) -> None:
    """Log a request: ``all``, ``errors`` from status 500 on, or ``none``."""
    if which == "all" or (which == "errors" and record.status >= 500):
        level = logging.ERROR if record.status >= 500 else logging.INFO
        LOGGER.log(level, "%s", record.line())


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
        message = record.getMessage()
        if record.name == LOGGER.name and message.startswith("{"):
            document |= json.loads(message)
        else:
            document["logger"] = record.name
            document["message"] = without_secrets(message)
        if record.exc_info:
            document["traceback"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(document)
