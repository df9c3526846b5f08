"""RaQuet: rasters as Parquet tables of tiles, with metadata 0.1.0 to 0.5.0.

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.check import LEVELS as LEVELS
    from comal.check import Report as Report
    from comal.raquet.checking.repairing import repair as repair
    from comal.raquet.checking.run import CODES as CODES
    from comal.raquet.checking.run import check as check
    from comal.raquet.documents import metadata_json as metadata_json
    from comal.raquet.exporting import Exported as Exported
    from comal.raquet.exporting import preview as preview
    from comal.raquet.exporting import to_cog as to_cog
    from comal.raquet.exporting import to_geotiff as to_geotiff
    from comal.raquet.querying.session import RaquetConnection as RaquetConnection
    from comal.raquet.querying.session import connect as connect
    from comal.raquet.querying.session import sql as sql
    from comal.raquet.querying.zonalstats import statistics as statistics
    from comal.raquet.querying.zonalstats import zonal as zonal
    from comal.raquet.reading.file import RaquetFile as RaquetFile
    from comal.raquet.reading.opening import open as open  # noqa: A004 - raquet.open
    from comal.raquet.reading.opening import open_async as open_async
    from comal.raquet.reading.windows import Window as Window
    from comal.raquet.spec import Band as Band
    from comal.raquet.spec import BandStatistics as BandStatistics
    from comal.raquet.spec import Metadata as Metadata
    from comal.raquet.times import TimeAxis as TimeAxis
    from comal.raquet.wire import parse_metadata as parse_metadata
    from comal.raquet.writing.copying import merge as merge
    from comal.raquet.writing.copying import partition as partition
    from comal.raquet.writing.creating import Written as Written
    from comal.raquet.writing.creating import write as write
    from comal.raquet.writing.planning import Options as Options

__all__, __getattr__, __dir__ = exports(__name__)
