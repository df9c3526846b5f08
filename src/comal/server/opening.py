"""From a place to a source that can be served: which format needs which module."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from comal.formats.sniff import FORMATS, gather, recognise
from comal.server.slots import Place, no_source
from comal.server.sources.base import Served
from comal.server.workshop import Workshop
from comal.storage import StorageConfig, open_source

_MODULES = {
    "taco": "samples",
    "taco-v1": "samples",
    "tortilla": "samples",
    "raquet": "raster",
    "tapalcatl": "tileset",
}
"""For each format the module of `comal.server.sources` with ``serve`` and ``serve_reader``."""

_ROOMS = {
    "comal.taco": "samples",
    "comal.tortilla": "samples",
    "comal.raquet": "raster",
    "comal.tapalcatl": "tileset",
}


def open_place(name: str, title: str, place: Place, workshop: Workshop, version: str) -> Served:
    """The source at a place, opened by the reader of its format.

    Raises
    ------
    ComalError
        It cannot be opened.
    InvalidInputError
        What was given is no reader of comal.
    """
    if place.href is None:
        return _of_reader(name, place.reader, workshop)
    named = name, title, place.href
    served: Served
    if place.options is not None:
        tiles = _module("tileset")
        served = tiles.serve(*named, "tapalcatl", workshop, version, place.options)
    else:
        found = format_of(place.href, workshop.storage)
        served = _module(_MODULES[found]).serve(*named, found, workshop, version)
    return served


def format_of(href: str, config: StorageConfig | None = None) -> str:
    """The name of the format at a path or a URL.

    Raises
    ------
    ComalError
        Nothing is there, or nothing that can be served.
    """
    with open_source(href, config=config) as source:
        evidence = gather(source)
        for candidate in FORMATS:
            if candidate.name in _MODULES and candidate.rule(evidence) is not None:
                return candidate.name
        return recognise(source).format.name


def _of_reader(name: str, reader: Any, workshop: Workshop) -> Served:
    if isinstance(reader, Served):
        return reader
    for home in (kind.__module__ for kind in type(reader).__mro__):
        for room, module in _ROOMS.items():
            if home == room or home.startswith(room + "."):
                served: Served = _module(module).serve_reader(name, reader, workshop)
                return served
    raise no_source(reader, name)


def _module(name: str) -> Any:
    return import_module(f"comal.server.sources.{name}")
