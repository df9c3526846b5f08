"""Options and arguments that several commands share, each defined once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any

import click


@dataclass(slots=True)
class Style:
    """How a command prints."""

    json: bool = False
    """Data as JSON, errors as one JSON object."""
    quiet: bool = False
    """Only data and errors."""
    debug: bool = False
    """A traceback with an error."""


pass_style = click.make_pass_decorator(Style, ensure=True)


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    setattr(ctx.ensure_object(Style), str(parameter.name), value)


def _flag(*names: str, help_text: str) -> Callable[[], click.Option]:
    return lambda: click.Option(
        names, is_flag=True, expose_value=False, callback=_remember, help=help_text
    )


def _link(ctx: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> None:
    if not value:
        return
    from comal.storage.config import LINKED_ORIGINS, StorageConfig  # noqa: PLC0415 - when it is used

    named = ",".join(value)
    StorageConfig(linked_origins=named)  # raises for anything but origins
    # The environment reaches everything that opens archives here, other processes included.
    ctx.with_resource(_environment(LINKED_ORIGINS, named))


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _linked_origins() -> click.Option:
    return click.Option(
        ["--linked-origins"],
        multiple=True,
        metavar="ORIGIN,...",
        expose_value=False,
        callback=_link,
        help="Other origins that archives may refer to: https://host[:port], s3://bucket, file://.",
    )


# -- values of options ----------------------------------------------------------------------------


class Parsed(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4
    """Values that a function parses from text; it raises ValueError for text of another form."""

    def __init__(self, form: str, parse: Callable[[str], Any]) -> None:
        self.name = form
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a text into a value."""
        try:
            return self._parse(value)
        except ValueError:
            self.fail(f"{value!r} is not {self.name}", param, ctx)


def _bbox(text: str) -> tuple[float, float, float, float]:
    west, south, east, north = map(float, text.split(","))
    return west, south, east, north


def _pair(text: str) -> tuple[str, str]:
    before, _, behind = text.partition("=")
    if not (before and behind):
        raise ValueError
    return before, behind


def _zooms(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(map(str.isdecimal, parts)):
        raise ValueError
    return sorted(set(map(int, parts)))


def _tile(text: str) -> tuple[int, int, int]:
    z, x, y = map(int, text.split("/"))
    return z, x, y


def _range(text: str) -> tuple[float, float]:
    low, high = map(float, text.split(","))
    return low, high


BBOX = Parsed("W,S,E,N", _bbox)
ZOOMS = Parsed("Z,Z,...", _zooms)
TILE = Parsed("Z/X/Y", _tile)
OLD_NEW = Parsed("OLD=NEW", _pair)
KEY_VALUE = Parsed("KEY=VALUE", _pair)
TILE_FILE = Parsed("Z/X/Y=FILE", lambda text: (_tile(_pair(text)[0]), _pair(text)[1]))


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def together(*options: Decorator) -> Decorator:
    """Several options, in their order."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        for one in reversed(options):
            function = one(function)
        return function

    return decorated


def option(names: str, text: str, *, to: str | None = None, **more: Any) -> Decorator:
    """An option with its help; the value goes `to` an argument, of its own name if absent."""
    where = [] if to is None else [to]
    default = bool(more.get("default"))
    return click.option(*names.split(), *where, help=text, show_default=default, **more)


def flag(name: str, text: str, **more: Any) -> Decorator:
    """An option without a value."""
    return option(name, text, is_flag=True, **more)


def choice(name: str, values: Sequence[str], text: str, **more: Any) -> Decorator:
    """One of several words."""
    return option(name, text, type=click.Choice(values), **more)


def whole(name: str, text: str, least: int, most: int | None = None, **more: Any) -> Decorator:
    """A whole number between two bounds."""
    return option(name, text, type=click.IntRange(least, most), **more)


def negative(name: str, to: str, text: str) -> Decorator:
    """A flag that makes an argument False."""
    return flag(name, text, to=to, callback=lambda _ctx, _parameter, value: not value)


COMMON = (
    _linked_origins,
    _flag("--json", help_text="Print data as JSON, and an error as one JSON object."),
    _flag("--quiet", "-q", help_text="Print no progress and no summary."),
    _flag("--debug", help_text="Show a traceback when something fails."),
)
"""Every command takes these."""

source = click.argument("source", metavar="X")
"""An archive: a path or a URL."""

_GENERATION1 = ("metatile", "tile_size", "max_detail_zoom", "layout", "prefix", "layer")
_OPENING = ("version", *_GENERATION1, "hash", "variant", "template")
_WHOLE = frozenset({"version", "metatile", "tile_size", "max_detail_zoom"})


def _opening(
    _ctx: click.Context, _parameter: click.Parameter, value: tuple[tuple[str, str], ...]
) -> dict[str, Any]:
    """Keyword arguments of `comal.tapalcatl.open`."""
    given: dict[str, Any] = {}
    for name, text in value:
        if name not in _OPENING:
            raise click.BadParameter(f"{name!r} is not among {', '.join(_OPENING)}")
        if name in _WHOLE and not text.isdecimal():
            raise click.BadParameter(f"{name} must be a whole number, not {text!r}")
        given[name] = int(text) if name in _WHOLE else text
    if given.get("version", 1) not in {1, 2}:
        raise click.BadParameter(f"version must be 1 or 2, not {given['version']}")
    if "template" in given:
        given["source"] = given.pop("template")
    if not given.keys().isdisjoint(_GENERATION1):
        given = {"version": 1, **given}
    return given


opening = option(
    "--open",
    "What a tileset does not say about itself; repeatable. Tapalcatl 1: version=1, metatile,"
    " tile_size, max_detail_zoom, layout (plain, prefix-hash, hash-prefix or a pattern), prefix,"
    " layer. Any: hash (name, file or layer), variant, template.",
    multiple=True,
    type=KEY_VALUE,
    callback=_opening,
    to="opening",
)

output_file = option("-o --output", "Write here instead of to standard output.", metavar="FILE")

band = option("--band", "Band to read, of a raster with several.", metavar="NAME")


def listed(_ctx: click.Context, _parameter: click.Parameter, value: tuple[Any, ...]) -> Any:
    """The values of a repeatable option; None if it was not given."""
    return list(value) or None


def number_or_name(text: str) -> int | str:
    """A band as functions take it: its number, from 1, or its name."""
    return int(text) if text.isdecimal() else text


drawing = together(
    option(
        "--band",
        "Only this band of a raster or RaQuet, by number or name; repeatable. Tiles are drawn of"
        " one or three.",
        multiple=True,
        callback=lambda *given: list(map(number_or_name, given[-1])) or None,
        metavar="BAND",
        to="bands",
    ),
    option(
        "--stretch",
        "Values that become black and white where RaQuet is drawn; once, or once for each band. By"
        " default 8-bit values stay, and of others the inner 90 percent are stretched.",
        multiple=True,
        callback=listed,
        type=Parsed("LOW,HIGH", _range),
    ),
)
"""Options of every command that draws RaQuet as tiles."""

overwrite = flag("--overwrite", "Replace an older target of the same kind, and nothing else.")


writing = together(overwrite, pass_style)
"""Options of every command that writes an archive."""

_by_whom = together(
    whole("--processes", "Processes that do the work; by default threads.", 1, metavar="N"),
    option(
        "--dask",
        "Scheduler whose workers do the work, or 'local' for workers on this machine.",
        metavar="ADDRESS",
    ),
)


def by_workers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say who does long work; the command receives them as ``executor``."""

    @wraps(function)
    def run(*given: Any, processes: int | None, dask: str | None, **named: Any) -> Any:
        if dask is None:
            return function(*given, executor=processes, **named)
        if processes is not None:
            raise click.UsageError("Give either --processes or --dask.")
        with _dask(dask) as executor:
            return function(*given, executor=executor, **named)

    return _by_whom(run)


@contextmanager
def _dask(address: str) -> Iterator[Any]:
    """The workers of a cluster; a lost one's tasks are done again by others."""
    from comal.errors import (  # noqa: PLC0415 - for one option
        MissingExtraError,
        StorageError,
        translated,
    )

    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise MissingExtraError.of("distributed", "dask", "--dask") from error
    with ExitStack() as scope:
        cluster: Any = address
        with translated(
            {OSError: StorageError, ValueError: StorageError},
            "the scheduler of Dask cannot be reached",
            where=address,
        ):
            if address == "local":
                cluster = scope.enter_context(distributed.LocalCluster(threads_per_worker=1))
            client = scope.enter_context(distributed.Client(cluster))
        yield client.get_executor(retries=2)


rename = flag(
    "--rename",
    "Number ids that appear twice (a.tif, a_2.tif); replace names that some systems refuse.",
)

any_schema = negative(
    "--any-schema", "validate_schema", "Join archives whose columns differ, where that works."
)

no_stac = negative("--no-stac", "stac", "Do not read CRS, shape and place of the rasters.")

as_csv = flag("--csv", "Print CSV; the default unless on a terminal.", to="as_csv")

untrusted = option(
    "--untrusted/--trusted",
    "Run the query in a process with hard limits on time and memory, or without them; by default"
    " with them if X is not on this machine.",
    default=None,
)


def is_isolated(source: str, *, untrusted: bool | None = None) -> bool:
    """Whether a query over X runs with hard limits: `untrusted` if given, else for remote X."""
    from comal.storage.location import parse_href  # noqa: PLC0415 - when it is used

    return parse_href(source).scheme != "file" if untrusted is None else untrusted


query_options = together(source, click.argument("query"), as_csv, untrusted, pass_style)
"""The parameters of every ``sql``: an archive, one SELECT, how to run it and what to print."""

_BOX = option(
    "--bbox", "Samples that touch this box, in degrees; W > E crosses the antimeridian.", type=BBOX
)
_TIME = option(
    "--datetime",
    "Samples in this time: '2025-06-01/2025-08-31', '2025-06-01/..' or one day.",
    metavar="RANGE",
    to="datetime_range",
)
_LEVEL = whole(
    "--level", "Level whose place and time count; by default the first that has them.", 0, 5
)
_WHERE = option("--where", "Samples that meet this condition: 'cloud_cover < 10'.", metavar="SQL")

row_options = together(_BOX, _TIME, _WHERE)
"""The filters that choose rows by their own columns: a box, a time range and SQL."""

where_options = together(_BOX, _TIME, _LEVEL, _WHERE)
"""The filters that choose samples by their own columns or by those of samples inside them."""
