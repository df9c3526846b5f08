"""The command line.

`main` is the entry point. A command parses its arguments, calls one function of the package and
prints the result. Commands for every format are in `generic`, those of one format in its module.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import click

from comal import __version__
from comal.cli.app import Root

__all__ = ["main", "root"]

COMMANDS = {
    "demo": ("comal.cli.demo:command", "Make a small data set, and query, read and check it."),
    "info": ("comal.cli.generic:info", "Show what an archive is: format, version, size, extent."),
    "ls": ("comal.cli.generic:ls", "List every leaf of an archive, with its byte range."),
    "get": ("comal.cli.generic:get", "Write the bytes of one leaf."),
    "check": (
        "comal.cli.generic:check",
        "List every problem of an archive; --repair writes a mended copy.",
    ),
    "clean": ("comal.cli.generic:clean", "Remove what killed writers left behind."),
    "sync": ("comal.cli.generic:sync", "Copy an archive between disks and stores, what differs."),
    "convert": ("comal.cli.convert:command", "Convert archives, rasters, tiles and folders."),
    "mirror": ("comal.cli.convert:mirror", "Copy some samples and leaves of a data set."),
    "serve": ("comal.cli.serve:command", "Serve archives over HTTP, with a map viewer."),
    "taco": ("comal.cli.taco:group", "Make, query, export and join TACO data sets."),
    "tortilla": ("comal.cli.tortilla:group", "Make, change, cut and join Tortilla files."),
    "raquet": ("comal.cli.raquet:group", "Make, query, export, cut and join RaQuet files."),
    "tapalcatl": (
        "comal.cli.tapalcatl:group",
        "Make, change, extract and join Tapalcatl tilesets.",
    ),
    "plan": ("comal.cli.jobs:plan", "Plan a large job for many machines, as a folder of parts."),
    "run": ("comal.cli.jobs:run", "Make the parts of a plan, or a share of them."),
    "merge": ("comal.cli.jobs:merge", "Make one data set of the parts of a plan."),
    "status": ("comal.cli.jobs:status", "Show what has become of the parts of a plan."),
    "ml": ("comal.cli.ml:group", "Statistics of samples for training, and what limits a loader."),
}


@click.group(
    "comal",
    cls=Root,
    table=COMMANDS,
    context_settings={"max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="comal")
def root() -> None:
    """Earth-observation archives in cheap storage, read by byte range.

    $ comal demo  # try all of it on made-up scenes
    $ comal taco create rasters/ scenes.tacozip  # pack a folder of GeoTIFFs into one file
    $ comal info https://example.org/scenes.tacozip  # look at an archive on a server
    $ comal taco sql scenes.tacozip 'SELECT id FROM data LIMIT 5'  # query it
    $ comal convert dem.tif dem.parquet  # a raster as RaQuet
    $ comal convert tiles.pmtiles tiles/  # map tiles as Tapalcatl
    $ comal serve dem.parquet tiles/ scenes.tacozip  # look at all three on a map
    """


_UNUSED = frozenset({"boto3", "pandas"})


class _WithoutUnused:
    """Makes some libraries look as if they were not installed.

    No command returns data frames or signs requests with boto3, but pyarrow and rasterio import
    these libraries if they are installed, which takes half a second of CPU time and 50 MB.
    """

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """Raise for these libraries and leave all others to the next finders."""
        if name in _UNUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _open_streams() -> None:
    """Write to files and pipes in UTF-8, whatever the locale; replace streams that are closed.

    The next file that is opened would take the number of a closed stream, and what libraries print
    to that stream would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: PTH123, SIM115 - stays open
            os.set_inheritable(number, True)
    out: Any = sys.stdout
    out.reconfigure(encoding=None if out.isatty() else "utf-8", errors="backslashreplace")


def main() -> NoReturn:
    """Run the command line of this process."""
    _open_streams()
    sys.meta_path.insert(0, _WithoutUnused)
    root.main(prog_name="comal")
    raise AssertionError("unreachable: the group ends the process")
