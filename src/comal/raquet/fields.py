"""Values of a JSON object from a stranger, and what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from comal.errors import Problem, shown
from comal.raquet.spec import Number


class Fields:
    """One object of a document; objects inside it note their problems in the same list."""

    def __init__(
        self, values: Mapping[str, Any], place: str, problems: list[Problem] | None = None
    ) -> None:
        self.values = values
        self.place = place
        self._separator = ": " if problems is None else "."
        self.problems: list[Problem] = [] if problems is None else problems

    @property
    def has_errors(self) -> bool:
        """Whether anything was noted that makes the document useless."""
        return any(problem.severity == "error" for problem in self.problems)

    def wrong(self, code: str, key: str, message: str) -> None:
        """Note an error."""
        self.problems.append(Problem(code, self._at(key), message))

    def doubt(self, code: str, key: str, message: str) -> None:
        """Note a warning."""
        self.problems.append(Problem(code, self._at(key), message, "warning"))

    def inside(self, key: str) -> Fields:
        """The object at `key`; an empty one when there is none."""
        value = self.values.get(key)
        found = value if isinstance(value, Mapping) else {}
        return Fields(found, self._at(key), self.problems)

    def element(self, key: str, index: int, values: Mapping[str, Any]) -> Fields:
        """An object that is an element of the list at `key`."""
        return Fields(values, f"{self._at(key)}[{index}]", self.problems)

    def rest(self, known: Collection[str]) -> dict[str, Any]:
        """What stands under keys that are not known."""
        return {key: value for key, value in self.values.items() if key not in known}

    def whole(
        self,
        key: str,
        *,
        least: int = 0,
        below: int = 1 << 64,
        code: str | None = None,
        needed: bool = True,
    ) -> int | None:
        """A whole number from `least` to `below`, also if it is written as 256.0; else None.

        With `code`, anything else is an error that makes the document useless, if it is `needed`;
        else it is a warning and counts as missing.
        """
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value < below:
            return value
        note = self.wrong if code and needed else self.doubt
        note(code or "raquet-number", key, f"{shown(value)} is no whole number from {least} on")
        return None

    def number(self, key: str) -> Number | None:
        """A finite number; anything else is a warning and counts as missing."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and _finite(value):
            return value
        self.doubt("raquet-number", key, f"{shown(value)} is no number")
        return None

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        value = self.values.get(key)
        if value is None or value == "":
            return None
        if isinstance(value, str):
            return value
        self.doubt("raquet-text", key, f"{shown(value)} is no text")
        return None

    def choice(
        self, key: str, allowed: Collection[str | None], code: str, default: Any = None
    ) -> Any:
        """One of `allowed`; anything else is an error."""
        value = self.values.get(key, default)
        value = default if value is None else value
        if (value is None or isinstance(value, str)) and value in allowed:
            return value
        names = ", ".join(str(one) for one in allowed)
        self.wrong(code, key, f"{shown(value)} is none of {names}")
        return default

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """An object; anything else is a warning and counts as missing."""
        value = self.values.get(key)
        if value is None or isinstance(value, Mapping):
            return value
        self.doubt("raquet-object", key, f"{shown(value)} is no object")
        return None

    def _at(self, key: str) -> str:
        return f"{self.place}{self._separator}{key}" if key else self.place


def _finite(value: Number) -> bool:
    return isinstance(value, int) or math.isfinite(value)
