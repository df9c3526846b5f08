"""Checks of every format: rules, findings and the report.

A rule is an entry in a format's table (`rules`), a function that looks for it, and a test.
Functions report findings to a `Check`, which also defines the level; all problems are counted, the
first thousand are kept.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, Self

import numpy as np

from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    Problem,
    ShortReadError,
    UnsafeContentError,
    compared,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import Workers, results
from comal.progress import Progress, silent

MAX_LISTED = 1_000

LEVELS = ("structure", "sample", "full")
"""How thorough a check can be: metadata alone, also some of the payloads, or every byte."""

_ONE_OF = {"structure": 0, "sample": 20, "full": 1}
"""One of this many payloads is read; 0 for none."""

Codes = Mapping[str, tuple[str, str]]
"""Severity (``error`` or ``warning``) and meaning of each code."""

OF_CONTENT = (
    InvalidMetadataError,
    NotThisFormatError,
    LimitExceededError,
    UnsafeContentError,
    ShortReadError,
)
"""Errors that say something about the content; all others are about the storage or comal itself."""


def rules(errors: Mapping[str, str], warnings: Mapping[str, str]) -> Codes:
    """A table of rules from the meaning of each code."""
    return {
        **{code: ("error", text) for code, text in errors.items()},
        **{code: ("warning", text) for code, text in warnings.items()},
    }


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a check."""

    where: str
    """The archive, or the first of several."""
    container: str | None
    """Kind of archive, such as ``zip`` or ``tortilla``; None if it is unknown."""
    level: str
    """How thorough the check was: ``structure``, ``sample`` or ``full``."""
    problems: tuple[Problem, ...]
    """The first thousand problems, errors before warnings, else in the order of discovery."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How often each code was found, listed or not."""
    errors: int = 0
    """Problems of severity error, listed or not."""

    @property
    def total(self) -> int:
        """All problems, listed or not."""
        return sum(self.counts.values())

    @property
    def warnings(self) -> int:
        """Problems of severity warning."""
        return self.total - self.errors

    @property
    def ok(self) -> bool:
        """Whether there is no error; warnings are allowed."""
        return self.errors == 0

    def to_dict(self) -> dict[str, Any]:
        """The report as plain data, as ``comal check --json`` prints it."""
        return {
            "ok": self.ok,
            "where": self.where,
            "container": self.container,
            "level": self.level,
            "errors": self.errors,
            "warnings": self.warnings,
            "total": self.total,
            "counts": dict(self.counts),
            "problems": [problem.to_dict() for problem in self.problems],
        }


class Check:
    """A running check: its findings and its settings.

    Parameters
    ----------
    codes
        The codes of the format.
    level
        One of `LEVELS`.
    limits
        Upper bounds for memory and sizes.
    progress
        Called with the progress.
    milder
        Codes that replace others when another package found them to be warnings, but the format
        has them as errors.
    of_limits
        Codes for exceeded limits, by name in `comal.limits.Limits`.

    Raises
    ------
    InvalidInputError
        An unknown level.
    """

    def __init__(
        self,
        codes: Codes,
        level: str = "full",
        limits: Limits = DEFAULT_LIMITS,
        progress: Progress | None = None,
        *,
        milder: Mapping[str, str] | None = None,
        of_limits: Mapping[str, str] | None = None,
    ) -> None:
        if level not in LEVELS:
            expected = ", ".join(LEVELS)
            raise InvalidInputError("unknown level of a check", found=level, expected=expected)
        self.level, self.limits, self.progress = level, limits, progress or silent
        self._codes = codes
        self._milder = milder or {}
        self._of_limits = of_limits or {}
        self._listed: dict[str, list[Problem]] = {"error": [], "warning": []}
        self._counts: Counter[str] = Counter()
        self.place = ""
        """Prefix of the places of problems."""

    @property
    def one_of(self) -> int:
        """One of this many payloads is read: 1 for every one, 0 for none."""
        return _ONE_OF[self.level]

    def part(self) -> Self:
        """A check with the same settings and no findings."""
        part = copy.copy(self)
        part._listed, part._counts = {"error": [], "warning": []}, Counter()  # noqa: SLF001
        return part

    def at(self, place: str) -> Self:
        """The same check with `place` as a further prefix of places."""
        part = copy.copy(self)
        part.place = self._placed(place)
        return part

    def add(self, code: str, place: str, message: str) -> None:
        """Add one problem."""
        self._counts[code] += 1
        self._list(code, self._placed(place), message)

    def add_rows(
        self, code: str, rows: Iterable[int] | np.ndarray[Any, Any], tell: Callable[[int], Any]
    ) -> None:
        """Add a problem for each row; `tell` returns ``(place, message)`` of listed ones."""
        found = np.asarray(rows, np.int64)
        self._counts[code] += len(found)
        room = MAX_LISTED - len(self._listed[self.severity(code)])
        for row in found[: max(0, room)].tolist():
            place, message = tell(row)
            self._list(code, self._placed(place), message)

    def take(self, problems: Iterable[Problem]) -> None:
        """Add problems that another package found, with the severities of the codes here."""
        for problem in problems:
            code = problem.code
            if problem.severity == "warning":
                code = self._milder.get(code, code)
            self.add(code, problem.place, problem.message)

    def take_all(self, other: Check, place: str = "") -> None:
        """Add all findings of another check, of something at `place` inside of this archive."""
        before = f"{place}: " if place else ""
        self._counts.update(other._counts)
        for problem in (*other._listed["error"], *other._listed["warning"]):
            self._list(problem.code, before + problem.place, problem.message)

    def take_from(
        self, look: Callable[..., Any], items: Sequence[Any], executor: Workers, *places: str
    ) -> list[Any]:
        """What ``look(item, check)`` returns for each item; what it reports is added at its place.

        An item is an archive or a list of them. Items are looked at one by one without an executor.
        """
        settings, values = self.part(), []
        counts = [*accumulate(len(item) if isinstance(item, list) else 1 for item in items)]
        if executor is not None:
            settings.progress = silent  # who is told is in this process
        task = partial(check_item, look, settings)
        with closing(results(executor, task, items, threads=0)) as found:
            named = zip(places or [""] * len(items), counts, found, strict=True)
            for place, done, (value, own) in named:
                self.take_all(own, place)
                values.append(value)
                self.progress(done, counts[-1], "archives")
        return values

    def take_error(self, error: ComalError, code: str, place: str) -> None:
        """Add an error about the content as a problem, or the problems that it carries."""
        if isinstance(error, InvalidMetadataError) and error.problems:
            self.take(error.problems)
            return
        if isinstance(error, UnsafeContentError | LimitExceededError):
            code = self._of_limits.get(str(error.fields.get("limit")), error.code)
        self.add(
            code,
            _joined(self._placed(place), error.where),
            ", ".join([error.what, *compared(error)]),
        )

    def guard(self, code: str, place: str) -> Guard:
        """Turn errors about the content into problems, so that the check goes on."""
        return Guard(self, code, place)

    def severity(self, code: str) -> str:
        """Severity of a code; an unknown code is an error."""
        return self._codes.get(code, ("error", ""))[0]

    def count(self, code: str) -> int:
        """How often `code` was found."""
        return self._counts[code]

    @property
    def total(self) -> int:
        """All problems so far."""
        return sum(self._counts.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The first thousand problems, errors before warnings, else in the order of discovery."""
        return (*self._listed["error"], *self._listed["warning"])[:MAX_LISTED]

    @property
    def errors(self) -> int:
        """Problems of severity error, listed or not."""
        return sum(n for code, n in self._counts.items() if self.severity(code) == "error")

    def report(self, where: str, container: str | None) -> Report:
        """The report of what was found."""
        counts = {code: n for code, n in sorted(self._counts.items()) if n}
        return Report(where, container, self.level, self.problems, counts, self.errors)

    def _placed(self, more: str) -> str:
        if not self.place or more == self.place or more.startswith(f"{self.place},"):
            return more
        return f"{self.place}, {more}" if more else self.place

    def _list(self, code: str, place: str, message: str) -> None:
        severity = self.severity(code)
        listed = self._listed[severity]
        if len(listed) < MAX_LISTED:
            listed.append(Problem(code, place, message, severity))


@dataclass(frozen=True, slots=True)
class Guard:
    """The context of `Check.guard`."""

    findings: Check
    code: str
    place: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, OF_CONTENT):
            self.findings.take_error(error, self.code, self.place)
            return True
        return False


def check_item(look: Callable[..., Any], settings: Check, item: Any) -> tuple[Any, Check]:
    """What `look` returns and reports; a task of `Check.take_from`."""
    own = settings.part()
    return look(item, own), own


def _joined(place: str, where: str | None) -> str:
    if where is None or where in place:
        return place
    return where if place in where else f"{place}: {where}"
