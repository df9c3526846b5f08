"""``comal serve``: archives over HTTP, with a viewer."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import click

from comal import strictjson
from comal.cli import options
from comal.cli.app import Command
from comal.errors import InvalidInputError, StorageError
from comal.storage import parse_href

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)", re.DOTALL)
_LOOKED = 10
"""Seconds that sources have to answer before they are served."""
_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to


_HELP = """\
Serve archives of any format: tiles, samples, statistics, and a viewer at the root.

A source is a path or a URL, or NAME=PATH to choose what its addresses begin with; for tiles it
may be meta.json, the folder that holds it, or one archive.

Tapalcatl 1 says nothing of itself, so it needs --config, where a source is an object with the
folder or prefix and how its keys are built:

\b
{"sources": {"old": {"href": "s3://bucket/tiles", "layer": "all", "metatile": 4,
                     "layout": "prefix-hash", "max_detail_zoom": 16}}}

\b
metatile         tiles of 256 pixels per side of an archive (4)
layout           prefix-hash, hash-prefix or plain,
                 or a pattern with {z} {x} {y}, and {hash} {prefix} {layer} {fmt} (plain)
layer, prefix    what stands for these
tile_size        pixels of a tile that is asked for without a size (256)
max_detail_zoom  deepest zoom of which there are archives
min_zoom, max_zoom, formats

Clients that are slow or silent are sent away. Prometheus finds the counts of all workers at
/metrics, OpenAPI is at /api.
"""


@click.command(
    "serve",
    cls=Command,
    help=_HELP,
    examples=(
        ("comal serve scenes.tacozip dem.parquet", "look at two archives in a browser"),
        ("comal serve roads=s3://bucket/roads/meta.json --port 80 --workers 4", "in production"),
        ("comal serve tiles/ --missing 204 --log all", "empty tiles as 204; log every request"),
        ("comal serve --config serve.json --idle-timeout 75", "behind a load balancer"),
    ),
)
@click.argument("sources", nargs=-1, metavar="PATH_OR_URL...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port to listen on.",
)
@click.option(
    "--workers", default=1, show_default=True, type=click.IntRange(1, 64), help="Processes."
)
@click.option("--prefix", default="", metavar="/PATH", help="Path before all addresses.")
@click.option(
    "--public-url", metavar="URL", help="What clients see before the path: https://example.org"
)
@click.option(
    "--missing",
    type=click.Choice(["404", "204"]),
    default="404",
    show_default=True,
    help="Status of a tile that a tileset could have and has not.",
)
@click.option(
    "--cache-control", default="public, max-age=3600", show_default=True, help="Empty for none."
)
@click.option(
    "--cors", multiple=True, metavar="ORIGIN", help="Origins that may read; every one by default."
)
@click.option("--no-cors", is_flag=True, help="No other origin may read.")
@click.option("--no-viewer", is_flag=True, help="No pages for people.")
@click.option(
    "--log",
    type=click.Choice(["all", "errors", "none"]),
    default="errors",
    show_default=True,
    help="Requests that are logged as JSON lines on standard error.",
)
@click.option(
    "--reload",
    "reload_seconds",
    default=2.0,
    show_default=True,
    help="Seconds after which a source is looked at for changes; 0 is never.",
)
@click.option("--timeout", default=60.0, show_default=True, help="Seconds for one request.")
@click.option(
    "--idle-timeout",
    "idle_seconds",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.5, 600),
    help="Seconds for the headers of a request and between two of a connection; behind a load "
    "balancer more than it keeps connections.",
)
@click.option(
    "--memory-map",
    is_flag=True,
    help="Map local RaQuet and Tapalcatl files into memory: reading costs less, but a file that "
    "is made shorter in place kills the worker. What comal writes is safe.",
)
@click.option("--cache", default=128, show_default=True, help="MiB of pictures that are kept.")
@click.option(
    "--max-memory",
    type=click.IntRange(128),
    metavar="MIB",
    help="A worker above this is replaced; at twice this, work that wants more is refused.",
)
@click.option("--server", hidden=True, help="Has no effect: the server is uvicorn.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help='JSON with more sources: {"sources": {"name": "path", "old": {"href": ..., ...}}}',
)
@click.option(
    "--lazy", is_flag=True, help="Do not look at the sources before serving: none has to be there."
)
@options.pass_style
def command(style: options.Style, /, sources: tuple[str, ...], **given: Any) -> None:
    """Serve until told to stop."""
    from comal.server import mounts, process  # noqa: PLC0415 - brings the formats

    process.check_installed()
    if given.pop("server") is not None:
        click.echo("warning: --server has no effect and will go: the server is uvicorn", err=True)
    named = _named(sources, given.pop("config"))
    found = mounts.places(named)
    if not given.pop("lazy"):
        _look_at(
            {
                name: place.href
                for name, place in found.items()
                if place.options is None and place.href is not None
            },
            mounts.format_of,
        )
    table = {
        name: place.href if place.options is None else {"href": place.href, **place.options}
        for name, place in found.items()
    }
    settings = _settings(table, given)
    _announce(settings, style)
    process.run(settings)


def _look_at(hrefs: dict[str, str], look: Callable[[str], str]) -> None:
    """Tell of sources that cannot be served now.

    They are served with their error and tried again; when none of them can be served and time
    will not mend it, the first error ends the command.
    """
    pool = ThreadPoolExecutor(16)
    looks = {name: pool.submit(look, href) for name, href in hrefs.items()}
    wait(looks.values(), _LOOKED)
    pool.shutdown(wait=False, cancel_futures=True)
    errors = {name: one.exception() for name, one in looks.items() if one.done()}
    failed = {name: error for name, error in errors.items() if error is not None}
    lasting = [error for error in failed.values() if not isinstance(error, StorageError)]
    if hrefs and len(lasting) == len(hrefs):
        raise lasting[0]
    for name in hrefs:
        if name in failed or name not in errors:
            why = failed.get(name, f"no answer within {_LOOKED} s")
            click.echo(f"warning: {name} cannot be served now and is tried again: {why}", err=True)


def _named(sources: tuple[str, ...], config: str | None) -> Any:
    from comal.server import mounts  # noqa: PLC0415 - as above

    named: dict[str, Any] = {}
    for text in sources:
        match = _NAMED.fullmatch(text)
        if match is not None and not Path(text).exists():
            named[mounts.free_name(match[1], named)] = match[2]
        else:
            named[mounts.free_name(mounts.suggested_name(_absolute(text)), named)] = text
    if config is not None:
        named |= _configured(config)
    return named


def _configured(path: str) -> dict[str, Any]:
    more = strictjson.loads(Path(path).read_bytes(), path).get("sources")
    if not isinstance(more, dict):
        raise InvalidInputError("the configuration has no sources", where=path)
    return more


def _absolute(text: str) -> str:
    return text if "://" in text else str(Path(text).absolute())


def _settings(table: dict[str, Any], given: dict[str, Any]) -> Any:
    from comal.server import process  # noqa: PLC0415 - as above
    from comal.server.settings import normalised_prefix  # noqa: PLC0415

    host, port = given["host"], given["port"]
    prefix = normalised_prefix(given["prefix"])
    address = f"[{host}]" if ":" in host else host
    local = None if host in _EVERYWHERE else f"http://{address}:{port}"
    return process.ProcessSettings(
        sources=table,
        host=host,
        port=port,
        workers=given["workers"],
        idle_seconds=given["idle_seconds"],
        max_memory=given["max_memory"],
        options={
            "prefix": prefix,
            "public_url": given["public_url"] or local,
            "missing": int(given["missing"]),
            "cache_control": given["cache_control"] or None,
            "cors": False if given["no_cors"] else list(given["cors"]) or True,
            "reload_seconds": given["reload_seconds"],
            "log": given["log"],
            "viewer": not given["no_viewer"],
            "memory_map": given["memory_map"],
            "limits": {
                "seconds": given["timeout"],
                "cache_bytes": given["cache"] * 1024 * 1024,
            },
        },
    )


def _announce(settings: Any, style: options.Style) -> None:
    public = settings.options["public_url"] or f"http://{settings.host}:{settings.port}"
    url = public + settings.options["prefix"]
    if style.json:
        click.echo(json.dumps({"url": url + "/", "sources": list(settings.sources)}))
    elif not style.quiet:
        click.echo(f"serving {len(settings.sources)} at {url}/", err=True)
        if settings.options["public_url"] is None:
            click.echo("  links are paths: STAC and OGC clients need --public-url", err=True)
        for name, place in settings.sources.items():
            where = parse_href(place if isinstance(place, str) else place["href"]).label
            click.echo(f"  {url}/{name}  {where}", err=True)
    sys.stdout.flush()
