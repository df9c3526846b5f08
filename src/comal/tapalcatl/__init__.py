"""Tapalcatl 1 and 2: web map tiles in ZIP archives that are read by range.

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.check import Report as Report
    from comal.tapalcatl.addressing import Generation1 as Generation1
    from comal.tapalcatl.checking import CODES as CODES
    from comal.tapalcatl.checking import check as check
    from comal.tapalcatl.containers.export import Exported as Exported
    from comal.tapalcatl.containers.export import NewTile as NewTile
    from comal.tapalcatl.containers.export import open_tiles as open_tiles
    from comal.tapalcatl.containers.export import to_directory as to_directory
    from comal.tapalcatl.containers.export import to_mbtiles as to_mbtiles
    from comal.tapalcatl.containers.export import to_pmtiles as to_pmtiles
    from comal.tapalcatl.layout import Layout as Layout
    from comal.tapalcatl.layout import Template as Template
    from comal.tapalcatl.layout import choose_layout as choose_layout
    from comal.tapalcatl.reading.opening import archive as archive
    from comal.tapalcatl.reading.opening import open as open  # noqa: A004 - tapalcatl.open
    from comal.tapalcatl.reading.tile import StoredTile as StoredTile
    from comal.tapalcatl.reading.tile import Tile as Tile
    from comal.tapalcatl.reading.tileset import TileSet as TileSet
    from comal.tapalcatl.spec import ArchiveMetadata as ArchiveMetadata
    from comal.tapalcatl.spec import TapalcatlWarning as TapalcatlWarning
    from comal.tapalcatl.spec import TileSetMetadata as TileSetMetadata
    from comal.tapalcatl.writing.building import Built as Built
    from comal.tapalcatl.writing.building import build as build
    from comal.tapalcatl.writing.editing import Labelled as Labelled
    from comal.tapalcatl.writing.editing import edit_metadata as edit_metadata
    from comal.tapalcatl.writing.entries import BuildOptions as BuildOptions
    from comal.tapalcatl.writing.entries import EntryOptions as EntryOptions
    from comal.tapalcatl.writing.reshaping import extract as extract
    from comal.tapalcatl.writing.reshaping import merge as merge
    from comal.tapalcatl.writing.reshaping import remetatile as remetatile
    from comal.tapalcatl.writing.updating import Changed as Changed
    from comal.tapalcatl.writing.updating import Recovered as Recovered
    from comal.tapalcatl.writing.updating import Space as Space
    from comal.tapalcatl.writing.updating import compact as compact
    from comal.tapalcatl.writing.updating import delete as delete
    from comal.tapalcatl.writing.updating import put as put
    from comal.tapalcatl.writing.updating import recover as recover
    from comal.tapalcatl.writing.updating import space as space

__all__, __getattr__, __dir__ = exports(__name__)
