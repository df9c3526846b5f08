"""A target must not be what is read, hold it, or lie in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from comal.errors import ConflictError, shown
from comal.storage import parse_href
from comal.taco.reading.container import Container


def refuse_source(containers: Sequence[Container], target: Path) -> None:
    """Refuse a target that is one of the sources, lies in one, or would replace a folder of one.

    Raises
    ------
    ConflictError
        It is.
    """
    location = parse_href(target)
    if "://" in location.href:
        return  # refused as a target anyway
    path = Path(os.path.realpath(location.path))
    for source in _local(containers):
        if path == source or path in source.parents or source in path.parents:
            raise ConflictError(
                "the target is part of the source",
                where=shown(path, 200),
                found=shown(source, 200),
                hint="choose another place",
            )


def _local(containers: Sequence[Container]) -> Iterator[Path]:
    for container in containers:
        hrefs = [container.source.href]
        if container.is_index:
            hrefs += [container.part(name).href for name in container.source_codes]
        yield from (Path(os.path.realpath(href)) for href in hrefs if "://" not in href)
