"""What a lazy dataset is made of: a tree of plain values that says how its rows come about.

`Scan` reads level 0 of a container, `Union` puts views one behind the other, `Staged` does one more
thing to a view. The tree holds no result and no connection, so it can be pickled and shared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from comal import query
from comal.samples.filters import Filter
from comal.taco.reading.container import Container

ColumnMode = Literal["intersection", "fill_missing", "strict"]


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """Level 0 of one container."""

    container: Container


@dataclass(frozen=True, slots=True, eq=False)
class Union:
    """Several views, one behind the other, with these columns."""

    parts: tuple[View, ...]
    columns: tuple[str, ...]
    mode: ColumnMode


_CHOOSING = re.compile(
    r"\s*select\s+\*\s+from\s+(?:data|level0)\s*(?:;?\s*\Z|\s(?:where|order|limit)\s)",
    re.IGNORECASE,
)
_JOINING = re.compile("union|intersect|except", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Sql:
    """A query of the caller over the view below."""

    text: str
    params: tuple[tuple[str, Any], ...] = ()
    isolated: bool | query.Budget = False

    @property
    def only_chooses(self) -> bool:
        """Whether its rows are surely rows of the view below, with nothing changed in them.

        So it is for ``SELECT * FROM data WHERE ...``, which is most queries; others may be, too.
        """
        text = self.text
        return not self.isolated and bool(_CHOOSING.match(text)) and not _JOINING.search(text)


@dataclass(frozen=True, slots=True)
class Sort:
    """Rows in the order of a column, otherwise as they were."""

    column: str
    descending: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """The first rows."""

    count: int


Stage = Sql | Filter | Sort | Limit


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """A view after one more stage."""

    below: View
    stage: Stage


View = Scan | Union | Staged


def containers(view: View) -> Iterator[Container]:
    """The containers below a view in order, each once."""
    seen: set[int] = set()
    for container in _containers(view):
        if id(container) not in seen:
            seen.add(id(container))
            yield container


def _containers(view: View) -> Iterator[Container]:
    match view:
        case Scan(container):
            yield container
        case Union(parts):
            for part in parts:
                yield from _containers(part)
        case Staged(below):
            yield from _containers(below)


def stages(view: View) -> Iterator[Stage]:
    """All stages of a view and of what it is made of."""
    match view:
        case Union(parts):
            for part in parts:
                yield from stages(part)
        case Staged(below, stage):
            yield from stages(below)
            yield stage
        case Scan():
            return


def may_change(view: View) -> bool:
    """Whether a query of the view may have put anything else into the columns of rows."""
    return any(isinstance(stage, Sql) and not stage.only_chooses for stage in stages(view))


def is_plain(view: View) -> bool:
    """Whether the view holds all rows of its containers."""
    return next(stages(view), None) is None


def unions(view: View) -> Iterator[Union]:
    """The unions in a view, outermost first."""
    match view:
        case Union(parts):
            yield view
            for part in parts:
                yield from unions(part)
        case Staged(below):
            yield from unions(below)
        case Scan():
            return
