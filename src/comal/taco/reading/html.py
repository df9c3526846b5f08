"""What notebooks show of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.errors import counted
from comal.frames import html

if TYPE_CHECKING:
    from comal.taco.reading.dataset import TacoDataset


def dataset(shown: TacoDataset) -> str:
    """The description of a dataset as an HTML table."""
    facts: dict[str, object] = {
        "id": shown.id,
        "title": shown.title or "",
        "version": shown.dataset_version or "",
        "description": shown.description or "",
        "tasks": ", ".join(map(str, shown.tasks)),
        "licenses": ", ".join(map(str, shown.licenses)),
        "spatial extent": shown.extent.get("spatial", ""),
        "temporal extent": shown.extent.get("temporal", ""),
        "location": shown.location,
        "levels": ", ".join(
            f"level {n}: {counted(shown.pit_schema.rows(n), 'row')}"
            for n in range(shown.pit_schema.levels)
        ),
    }
    return html.facts(facts)
