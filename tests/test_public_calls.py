"""No exception of Python or of a library leaves the public API, whatever an argument is.

A valid call of every public function, and of every public method of what they return; then each
parameter in turn gets values of the wrong kind, empty, huge, null and twice. A call may do its work
or raise a `ComalError`. A function, method or parameter that is new is tried without being named
here, unless it needs an argument whose name no other has.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import os
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import fields
from io import BytesIO
from itertools import count, islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from shapely import box

from comal import (
    convert,
    formats,
    jobs,
    ml,
    public,
    raquet,
    raster,
    server,
    site,
    taco,
    tapalcatl,
    tortilla,
)
from comal.errors import ComalError, InvalidInputError, LimitExceededError
from comal.public import fits, guarded
from tests.archives import (
    WHAT_A_TORTILLA_LACKS,
    Files,
    files,
    fresh,
    made,
    samples,
    small_demo,
)
from tests.server.making import PNG

__all__ = ["files", "made"]

Arguments = Callable[[Files], dict[str, Any]]


@pytest.fixture(autouse=True)
def one_scene() -> Iterator[None]:
    """The demo is run for each wrong argument."""
    with small_demo():
        yield


_NUMBERS = count()


def sound(files: Files) -> str:
    """A tileset of one format without a damaged tile."""
    target = Path(files.dem).parent / "sound"
    if not target.exists():
        tiles = [(z, x, y, PNG) for z in range(3) for x in range(1 << z) for y in range(1 << z)]
        tapalcatl.build(tiles, target, ext="png")
    return str(target)


def new(files: Files, ending: str = "") -> str:
    """A target that no call before has written, in a folder of its own."""
    folder = files.out / f"at{next(_NUMBERS)}"
    folder.mkdir()
    return str(folder / f"o{ending}")


@functools.cache
def training(place: str) -> Any:
    """Samples for training, opened once: no method changes them."""
    columns = ["cloud_cover", "split", "stac:crs", "stac:geotransform", "stac:tensor_shape"]
    return ml.dataset(place, {"image": "image.tif"}, columns=[*columns, "stac:centroid"])


@functools.cache
def pixels(place: str) -> Any:
    """Chips or tiles, opened once too."""
    return ml.chips(place, 32)


@functools.cache
def planned(f: Files) -> str:
    plan = new(f, "")
    jobs.plan_raquet([f.tif], new(f, ""), plan)
    jobs.run(plan)
    return plan


def statistics(place: str) -> ml.Statistics:
    found: ml.Statistics = training(place).stats()
    return found


def saved(files: Files) -> str:
    path = files.new("saved.json")
    training(files.scenes).stats(save=path)
    return path


SPECIAL: dict[str, Arguments] = {
    "comal.sync": lambda f: {"source": f.tacodir, "target": new(f)},
    "convert.convert": lambda f: {"source": f.tif, "output": new(f, ".parquet")},
    "convert.draw": lambda _: {"stretch": (0, 1)},
    **dict.fromkeys(("jobs.merge", "jobs.run", "jobs.status"), lambda f: {"plan": planned(f)}),
    "jobs.plan_raquet": lambda f: {"sources": [f.tif], "output": new(f, ""), "plan": new(f, "")},
    "jobs.plan_taco": lambda f: {"output": new(f, ".tacozip"), "plan": new(f, "")},
    "jobs.plan_tortilla": lambda f: {"output": new(f, ".tortilla"), "plan": new(f, "")},
    "jobs.plan_tapalcatl": lambda f: {
        "source": sound(f),
        "output": new(f, ""),
        "plan": new(f, ""),
    },
    "ml.Field": lambda _: {"leaf": "a", "extras": ["mask"]},
    "ml.Loader": lambda f: {"data": training(f.scenes), "order": ml.Order(2)},
    "ml.LoaderOptions": lambda _: {"workers": 1},
    "ml.Order": lambda _: {"rows": 2},
    "ml.Sampler": lambda _: {"order": ml.Order(2)},
    "ml.SamplerOptions": lambda _: {"weights": "cloud_cover"},
    "ml.Statistics.load": lambda f: {"path": saved(f)},
    "ml.Statistics.of": lambda f: {"plain": statistics(f.scenes).to_dict()},
    "ml.StatisticsOptions": lambda _: {"classes": ["image"]},
    "ml.bench": lambda f: {"data": training(f.scenes), "seconds": 0.001},
    "ml.chips": lambda f: {"source": f.dem, "size": 32},
    "ml.collate": lambda _: {"samples": [{"a": np.zeros(2)}], "to": "numpy"},
    "ml.mirror": lambda f: {"target": new(f, ".tacozip")},
    "raquet.parse_metadata": lambda f: {
        "text": raquet.metadata_json(raquet.open(f.dem).metadata),
        "where": "x",
    },
    "raquet.metadata_json": lambda f: {"metadata": raquet.open(f.dem).metadata},
    "raquet.sql": lambda _: {"query": "SELECT count(*) FROM raster"},
    "raquet.to_cog": lambda f: {"path": new(f, ".tif")},
    "raquet.to_geotiff": lambda f: {"path": new(f, ".tif")},
    "raquet.write": lambda f: {"source": f.tif},
    "raquet.zonal": lambda _: {"zones": [box(0, 0, 1, 1)]},
    "raster.class_shares": lambda _: {"classes": [1]},
    "raster.headers": lambda f: {"sources": [f.tif]},
    "raster.sniff_driver": lambda _: {"head": b"II*\0"},
    "server.app": lambda f: {"sources": {"a": f.dem}},
    "taco.Sample": lambda f: {"path": b"a", "temp_dir": str(f.out)},
    "taco.Taco": lambda f: {
        "tortilla": taco.Tortilla([taco.Sample(id="a", path=f.tif)]),
        **WHAT_A_TORTILLA_LACKS,
    },
    "taco.Tortilla": lambda f: {"samples": [taco.Sample(id="a", path=f.tif)]},
    "taco.concat": lambda f: {"datasets": [taco.load(f.scenes)]},
    "taco.create": lambda f: {"taco": samples(f)},
    "taco.create_tacocat": lambda f: {"output": str(Path(new(f)).parent)},
    "taco.create_tacollection": lambda f: {"output": str(Path(new(f)).parent)},
    "taco.export": lambda f: {"dataset": taco.load(f.scenes), "quiet": True},
    "taco.folder2zip": lambda f: {"input": f.tacodir, "quiet": True},
    "taco.migrate": lambda f: {
        "source": f.tortilla,
        "output": new(f, ".tacozip"),
        **WHAT_A_TORTILLA_LACKS,
    },
    "taco.zip2folder": lambda f: {"output": new(f), "quiet": True},
    "tapalcatl.BuildOptions": lambda _: {"ext": "png", "bounds": (0, 0, 1, 1), "metatile": 2},
    "tapalcatl.EntryOptions": lambda _: {"times": "source", "entry_headers": {(0, 0, 0): ()}},
    "tapalcatl.archive": lambda f: {"href": f"{f.tiles}/0/0/0.zip"},
    "tapalcatl.build": lambda _: {"ext": "png"},
    "tapalcatl.choose_layout": lambda _: {"min_zoom": 0, "max_zoom": 3},
    "tapalcatl.delete": lambda _: {"tiles": [(0, 0, 0)]},
    "tapalcatl.edit_metadata": lambda _: {"changes": {"name": "b"}},
    "tapalcatl.extract": lambda _: {"max_zoom": 1},
    "tapalcatl.merge": lambda f: {"sources": [sound(f)]},
    "tapalcatl.put": lambda _: {"tiles": [(0, 0, 0, PNG)], "ext": "png"},
    "tapalcatl.recover": lambda f: {"path": f.tiles},
    "tapalcatl.remetatile": lambda _: {"metatile": 1},
    "tapalcatl.to_directory": lambda f: {"path": new(f), "ext": "png"},
    "tapalcatl.to_mbtiles": lambda f: {"path": new(f, ".mbtiles"), "ext": "png"},
    "tapalcatl.to_pmtiles": lambda f: {"path": new(f, ".pmtiles"), "ext": "png"},
    "tortilla.Sample": lambda f: {"path": f.tif},
    "tortilla.Slice": lambda f: {"source": f.tif, "offset": 0, "size": 3},
    "tortilla.append": lambda f: {"samples": [tortilla.Sample("c", path=f.tif)]},
    "tortilla.create": lambda f: {"samples": [tortilla.Sample("a", path=f.tif)]},
    "tortilla.delete": lambda _: {"rows": [0]},
    "tortilla.edit": lambda _: {"rename": {"a.tif": "b"}, "columns": {"q": [1, 2]}},
}
"""Arguments beside those that every function of its room takes; see `arguments`."""

READ: dict[str, Callable[[Files], str]] = {
    **dict.fromkeys(("comal", "storage", "convert", "formats", "raquet"), lambda f: f.dem),
    "ml": lambda f: f.scenes,
    "raster": lambda f: f.tif,
    "taco": lambda f: f.scenes,
    "tapalcatl": lambda f: f.tiles,
    "tortilla": lambda f: f.tortilla,
}
MADE = {"taco": ".tacozip", "tortilla": ".tortilla", "raquet": ".parquet"}
"""What functions of a room read, and what the names of their targets end in."""


def arguments(name: str, f: Files) -> dict[str, Any]:
    """A valid call: what is special, and for each other argument that is needed its usual value."""
    room = name.partition(".")[0]
    found = SPECIAL[name](f) if name in SPECIAL else {}
    parameters = inspect.signature(function_of(name)).parameters.values()
    beside = {one.name for one in parameters} & {"source", "parts"}
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    for one in parameters:
        if one.name in found or one.default is not one.empty or one.kind in several:
            continue
        if one.name in {"output", "out", "folder"} or (one.name == "path" and beside):
            found[one.name] = new(f, "" if one.name == "folder" else MADE.get(room, ""))
        elif one.name == "id":
            found["id"] = "a"
        elif one.name == "directory":
            found["directory"] = f.folder
        elif room == "tapalcatl" and one.name == "source":
            found["source"] = sound(f)
        else:
            read = READ[room](f)
            found[one.name] = [read] if one.name == "inputs" else read
    return found


WITHOUT_ONE = {
    "formats.adapter_of",
    "formats.of_band",
    "formats.recognise",
    "raster.open_raster",
    "raster.sample_footprint",
    "site.site_files",
    "site.viewer_files",
    "taco.verbose",
    "convert.migrate",  # taco.migrate
    "ml.as_geo",  # they need TorchGeo
    "ml.as_nongeo",
}
"""Functions of other rooms, which take what only these have."""


def function_of(name: str) -> Callable[..., Any]:
    room, *path = name.split(".")
    thing: Any = importlib.import_module(f"comal.{room}" if room != "comal" else room)
    function: Callable[..., Any] = functools.reduce(getattr, path, thing)
    return function


def public_functions() -> Iterator[str]:
    """All of them: a new one is tried without being named here, if its arguments are usual."""
    yield from ("comal.open", "comal.sync", "demo.run", "storage.open_source")
    yield from (name for name, one in CLASSES.items() if one)
    rooms = (convert, formats, jobs, ml, raquet, raster, server, site, taco, tapalcatl, tortilla)
    for room in rooms:
        for short in room.__all__:
            if inspect.isfunction(getattr(room, short)):
                yield f"{room.__name__.partition('.')[2]}.{short}"


CLASSES = {name: not inspect.isfunction(function_of(name)) for name in SPECIAL}
FUNCTIONS: dict[str, Arguments] = {
    name: functools.partial(arguments, name) for name in sorted({*public_functions()} - WITHOUT_ONE)
}
OBJECTS: dict[str, Callable[[Files], Any]] = {
    "TacoDataset": lambda f: taco.load(f.scenes),
    "TacoDataFrame": lambda f: taco.load(f.scenes).data,
    "TortillaFrame": lambda f: tortilla.open(f.tortilla),
    "RaquetFile": lambda f: raquet.open(f.dem),
    "RaquetConnection": lambda f: raquet.connect(f.dem),
    "TileSet": lambda f: tapalcatl.open(f.tiles),
    "raquet.Metadata": lambda f: raquet.open(f.dem).metadata,
    "ml.ArchiveDataset": lambda f: training(f.scenes),
    "ml.ChipDataset": lambda f: pixels(f.dem),
    "ml.Loader": lambda f: training(f.scenes).loader(1),
    "ml.Order": lambda _: ml.Order(2),
    "ml.Sampler": lambda f: training(f.scenes).sampler(1),
    "ml.Statistics": lambda f: statistics(f.scenes),
    "ml.TileDataset": lambda f: pixels(sound(f)),
}
NAMED: dict[str, Any] = {
    "band": "height",
    "bbox": (-10, -10, 10, 10),
    "done": 0,
    "number": 0,
    "count": 1,
    "epoch": 0,
    "parts": {"a": 1.0, "b": 1.0},
    "positions": np.array([0]),
    "state": {},
    "total": 2,
    "by": "id",
    "column": "id",
    "columns": ["id"],
    "condition": "1 = 1",
    "corners": [(0, 0)],
    "datetime_range": "2020-01-01/2021-01-01",
    "ext": "png",
    "height": 4,
    "id": "a.tif",
    "ids": ["a.tif"],
    "idx": 0,
    "key": 0,
    "lat": 0.0,
    "lats": [0.0],
    "lon": 0.0,
    "lons": [0.0],
    "mask": [True, False],
    "maxx": 10,
    "maxy": 10,
    "minx": -10,
    "miny": -10,
    "n": 1,
    "name": "height",
    "nodata": 0,
    "path": "o",
    "points": [(0.0, 0.0)],
    "query": "SELECT * FROM data",
    "row": 0,
    "rows": [0],
    "tile": (0, 0, 0),
    "tiles": [(0, 0, 0)],
    "width": 4,
    "x": 0,
    "y": 0,
    "z": 0,
    "zoom": 0,
    "zones": [box(0, 0, 1, 1)],
}
"""What a required argument of a method may be, by its name."""

WRONG: dict[str, Any] = {
    "an object": object(),
    "None": None,
    "bytes": b"a",
    "no text": "",
    "NUL": "a\0b",
    "a text": "no such thing",
    "a long text": "\u00e9" * 70_000,
    "half a surrogate pair": "\ud800",
    "-1": -1,
    "10 ** 400": 10**400,
    "2 ** 63": 2**63,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "True": True,
    "a class": Path,
    "no items": [],
    "[None]": [None],
    "[None, None]": [None, None],
    "[10 ** 400]": [10**400],
    "[object]": [object()],
    "[[[]]]": [[[]]],
    "twice the same": ["a", "a"],
    "no keys": {},
    "{1: None}": {1: None},
    "{'': object}": {"": object()},
    "an array": np.array([[1.0]]),
}
FEW = 2
"""How many of them each parameter gets in an ordinary run, beside an object."""


def called(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Call, wait for what is awaited, and take the first of what is iterated."""
    result = function(**arguments)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    if inspect.isgenerator(result):
        list(islice(result, 20))
    if not isinstance(result, type) and callable(getattr(result, "close", None)):
        result.close()


def kinds_for(label: str) -> Iterator[str]:
    """All kinds of wrong values, or an object and a few that differ from one to the next."""
    names = list(WRONG)
    if os.environ.get("COMAL_FULL_SWEEP") or label.endswith(" isolated"):
        yield from names
        return
    yield names[0]
    first = zlib.crc32(label.encode())
    yield from {names[1 + (first + step * 7) % (len(names) - 1)] for step in range(FEW)}


def not_started(*_: Any, **__: Any) -> Any:
    """Instead of a process for each value of ``isolated``, of which only whether it is true goes.

    Those that get a right one are in ``tests/cli/test_sql.py``.
    """
    raise LimitExceededError("no process is started")


def foreign(
    function: Callable[..., Any], arguments: Callable[[], dict[str, Any]], label: str
) -> dict[str, str]:
    """What comes out that is no error of ours, by parameter and kind of value."""
    found = {}
    for name in named_parameters(function):
        if name == "self":
            continue
        for kind in kinds_for(f"{label} {name}"):
            if (name, kind) == ("tell", "a class"):
                continue  # what a callback raises is the caller's own
            alone = mock.patch.object(subprocess, "Popen", not_started)
            try:
                with alone if name == "isolated" else nullcontext():
                    called(function, {**arguments(), name: WRONG[kind]})
            except ComalError:
                pass
            except Exception as error:  # noqa: BLE001 - any of these is what is looked for
                found[f"{name}={kind}"] = f"{type(error).__name__}: {error}"[:200]
    return found


def named_parameters(function: Callable[..., Any]) -> list[str]:
    """Those of the signature, and the fields of the options that it takes."""
    parameters = inspect.signature(function).parameters.values()
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    options = getattr(inspect.unwrap(function), "takes", None)
    more = [] if options is None else [one.name for one in fields(options)]
    return [*dict.fromkeys([*(one.name for one in parameters if one.kind not in several), *more])]


quiet = pytest.mark.filterwarnings(
    "ignore::comal.tortilla.TortillaWarning",
    "ignore::comal.taco.TacoWarning",
    "ignore::comal.tapalcatl.TapalcatlWarning",
    "ignore::RuntimeWarning",
)


@quiet
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_let_no_foreign_exception_out(
    name: str, made: Path, files: Files, capfd: pytest.CaptureFixture[str]
) -> None:
    function = function_of(name)
    arguments = FUNCTIONS[name](files)
    called(function, arguments)
    made_by: Any = vars(function).get("__init__", function)
    hints = public.hints_of(inspect.unwrap(made_by))
    assert [one for one in arguments if one in hints and not fits(arguments[one], hints[one])] == []
    in_place = name.startswith(("tapalcatl.", "tortilla."))

    def again() -> dict[str, Any]:
        return FUNCTIONS[name](fresh(made, files.out) if in_place else files)

    assert foreign(function, again, name) == {}


@quiet
@pytest.mark.parametrize("name", OBJECTS)
def test_methods_let_no_foreign_exception_out(name: str, made: Path, files: Files) -> None:
    cls = type(OBJECTS[name](files))
    found: dict[str, str] = {}
    for method, function in methods(cls).items():
        required = [
            parameter.name
            for parameter in list(inspect.signature(function).parameters.values())[1:]
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        ]
        given = {parameter: NAMED[parameter] for parameter in required}
        if not list(inspect.signature(function).parameters)[1:]:
            continue

        def arguments(given: dict[str, Any] = given) -> dict[str, Any]:
            return {"self": OBJECTS[name](files), **given}

        faults = foreign(function, arguments, f"{name}.{method}")
        found |= {f"{method} {place}": fault for place, fault in faults.items()}
    assert found == {}


HOOKS = {"complete", "decode"}
"""Methods of data sets for training that get what another one has read."""


def methods(cls: type[Any]) -> dict[str, Callable[..., Any]]:
    """Public methods of a class, inherited ones too."""
    return {
        name: getattr(cls, name)
        for name in dir(cls)
        if not name.startswith("_")
        and name not in HOOKS
        and inspect.isfunction(inspect.getattr_static(cls, name))
    }


# -- paths -----------------------------------------------------------------------------------------

SOURCES = {"href", "source", "sources", "input", "inputs", "parts", "other", "directory"}
SOURCES |= {"datasets", "dataset", "path", "target"}
TARGETS = {"output", "out", "folder"}
"""What parameters are called that take a path, a URL or several."""
OPTIONAL = {"base_path", "manifest", "output"}
"""Those that may be left out, and whose name means nothing else elsewhere."""


def is_target(name: str, parameter: str) -> bool:
    """Whether a parameter names what is written; some names do so beside what is read."""
    beside = {"source", "parts"} & set(inspect.signature(function_of(name)).parameters)
    return parameter in TARGETS or (parameter in {"path", "target"} and bool(beside))


def places() -> Iterator[tuple[str, str]]:
    """Every parameter of a public function that takes a path."""
    for name in FUNCTIONS:
        for parameter in inspect.signature(function_of(name)).parameters.values():
            if parameter.name in OPTIONAL or (
                parameter.name in SOURCES | TARGETS and parameter.default is parameter.empty
            ):
                yield name, parameter.name
    yield "taco.Sample", "temp_dir"  # others take it for the sake of the specification alone


PLACES = list(places())
TARGETS_OF = {name: parameter for name, parameter in PLACES if is_target(name, parameter)}


def called_with(name: str, parameter: str, value: Any, files: Files) -> Any:
    """The valid call with something else as one of its paths; lazy ones are written."""
    result = function_of(name)(**{**FUNCTIONS[name](files), parameter: value})
    if isinstance(result, tortilla.Sample | tortilla.Slice):
        sample = (
            result if isinstance(result, tortilla.Sample) else tortilla.Sample("a", path=result)
        )
        return tortilla.create([sample], new(files, ".tortilla"))
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def within(name: str, parameter: str, files: Files) -> Iterator[Callable[[Any], Any]]:
    """How a value becomes the argument: as it is, and in the list or mapping that is expected."""
    valid = FUNCTIONS[name](files).get(parameter)
    yield lambda value: value
    if isinstance(valid, list):
        yield lambda value: [value]
    elif isinstance(valid, dict):
        yield lambda value: dict.fromkeys(valid, value)


NO_PATHS: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"a",
    "int": lambda: 1,
    "object": object,
    "class": lambda: Path,
    "open file": lambda: BytesIO(b"a"),
    "none": lambda: None,
    "dict": dict,
    "list of none": lambda: [None],
    "list of bytes": lambda: [b"a"],
    "empty list": list,
    "empty": lambda: "",
    "nul": lambda: "a\0b",
}
"""What is not a path, nor several; made anew for each call."""

MEMORY = {"bytes"}
FINE = {
    ("raquet.connect", "href", 0): {"dict"},  # no table at all
    ("raquet.sql", "href", 0): {"dict"},
    # Rasters in memory.
    ("raster.band_stats", "source", 0): MEMORY,
    ("raster.class_shares", "source", 0): MEMORY,
    ("raster.header", "source", 0): MEMORY,
    ("raster.headers", "sources", 0): {"empty list", "open file", "list of bytes"},
    ("raster.headers", "sources", 1): MEMORY,
    ("raster.preview", "source", 0): MEMORY,
    ("site.write", "sources", 0): {"empty list"},
    ("taco.Sample", "path", 0): MEMORY,
    ("tortilla.Sample", "path", 0): {"bytes", "open file", "list of bytes"},
}
"""What means something there, or is another kind of fault; 0 is the value itself, 1 within."""


def answer(name: str, parameter: str, value: Any, files: Files) -> str | None:
    """What is wrong with how a call refuses a value; None when nothing is."""
    try:
        result = called_with(name, parameter, value, files)
    except InvalidInputError as error:
        said = error.found is not None or error.expected is not None
        return None if said else f"does not say what it found: {error}"
    except ComalError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - any of these is what is looked for
        return f"foreign {type(error).__name__}: {error}"
    return f"accepted: {type(result).__name__}"


@pytest.mark.parametrize(("name", "parameter"), PLACES)
def test_what_is_no_path_is_refused(name: str, parameter: str, files: Files) -> None:
    found = {}
    default = inspect.signature(function_of(name)).parameters[parameter].default
    for number, put in enumerate(within(name, parameter, files)):
        fine = FINE.get((name, parameter, number), set())
        for kind, make in NO_PATHS.items():
            value = put(make())
            if kind not in fine and (value is not None or default is not None):
                fault = answer(name, parameter, value, files)
                if fault is not None:
                    found[number, kind] = fault
    assert found == {}
    left = [path.name for path in files.out.rglob("*") if path.name.startswith(("o", ".o"))]
    assert left == []


@pytest.mark.filterwarnings("ignore::comal.tortilla.TortillaWarning")  # names without an ending
@pytest.mark.parametrize(("name", "parameter"), PLACES)
def test_a_file_for_a_folder_and_the_other_way_round(
    name: str, parameter: str, files: Files
) -> None:
    (files.out / "file").write_bytes(b"no archive")
    for kind in ("folder", "file", "missing", "missing/a", "file/a"):
        (files.out / "folder").mkdir(exist_ok=True)
        for put in within(name, parameter, files):
            with suppress(ComalError):  # what may be written is written
                called_with(name, parameter, put(str(files.out / kind)), files)
        assert (files.out / "file").read_bytes() == b"no archive", kind


OWN = {
    "taco": {".tacozip", ".zip"},
    "taco.zip2folder": set(),
    "ml": {".tacozip", ".zip"},
    "tortilla": {".tortilla", ".taco"},
    "jobs.plan_taco": {".tacozip", ".zip"},
    "jobs.plan_tortilla": {".tortilla", ".taco"},
    "raquet": {".parquet"},
    "raquet.to_cog": {".tif", ".tiff"},
    "raquet.to_geotiff": {".tif", ".tiff"},
    "tapalcatl": {".zip"},
    "tapalcatl.to_directory": set(),
    "tapalcatl.to_mbtiles": {".mbtiles"},
    "tapalcatl.to_pmtiles": {".pmtiles"},
    "convert": {".zip"},
    "convert.draw": {".zip", ".mbtiles", ".pmtiles"},
}
"""Endings of what each writes; all else has the ones of its package, or none."""

ENDINGS = [".tacozip", ".zip", ".taco", ".tortilla", ".parquet", ".TIF", ".tiff", ".png", ".jpg"]
ENDINGS += [".mbtiles", ".pmtiles", ".json", ".geojson", ".csv", ".nc", ".vrt"]
FREE = {"taco.create_tacocat", "taco.create_tacollection", "convert.convert"}
"""They write names of their own into a folder, or what the ending says."""


@pytest.mark.parametrize("name", sorted(TARGETS_OF.keys() - FREE))
def test_a_target_that_is_called_like_another_format_is_refused(name: str, files: Files) -> None:
    own: set[str] = OWN.get(name, OWN.get(name.partition(".")[0], set()))
    for ending in ENDINGS:
        if ending.lower() not in own:
            with pytest.raises(InvalidInputError, match="another format") as caught:
                called_with(name, TARGETS_OF[name], files.new(f"o{ending}"), files)
            assert ending.lower() in str(caught.value.found)
            assert caught.value.hint is not None
    assert not list(files.out.glob("o.*"))


class TestGuarded:
    def test_an_exception_that_no_argument_explains_passes(self) -> None:
        def broken(number: int) -> int:
            return [number][number]

        with pytest.raises(IndexError):
            guarded(broken)(3)

    def test_the_argument_to_blame_is_named(self) -> None:
        def halved(number: int, what: str = "") -> float:
            return number / 2

        with pytest.raises(InvalidInputError, match="number cannot be used") as caught:
            guarded(halved)("3", what="x")
        assert caught.value.expected == "int"
        assert isinstance(caught.value.__cause__, TypeError)

    def test_arrays_fit_by_type(self) -> None:
        whole = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
        assert fits(np.arange(3), whole)
        assert fits(np.zeros((2, 2), np.int64), whole)
        assert not fits(np.zeros(3), whole)
        assert not fits([1, 2], whole)

    def test_generators_and_coroutines_stay_what_they_are(self) -> None:
        def numbers(upto: int) -> Iterator[int]:
            yield from range(upto)

        async def number(value: int) -> int:
            return value + 1

        assert list(guarded(numbers)(3)) == [0, 1, 2]
        assert asyncio.run(guarded(number)(3)) == 4
        for call in (lambda: list(guarded(numbers)("3")), lambda: asyncio.run(guarded(number)([]))):
            with pytest.raises(InvalidInputError):
                call()
