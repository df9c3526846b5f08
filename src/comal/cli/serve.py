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
from click import argument

from comal import strictjson
from comal.cli import app, options
from comal.cli.options import choice, flag, option, whole
from comal.errors import InvalidInputError, StorageError
from comal.limits import MIB
from comal.storage import parse_href

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)", re.DOTALL)
_LOOKED = 10
"""Seconds in which sources have to answer at the start."""
_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound to


_HELP = """\
Serve archives of any format: tiles, samples, statistics, and a viewer at the root.

A source is a path or a URL, or NAME=PATH to choose what its addresses begin with; for tiles it
may be meta.json, the folder that holds it, or one archive.

Tapalcatl 1 says nothing about itself, so it needs --config, where a source is an object with the
folder or prefix and how its keys are built:

\b
{"sources": {"old": {"href": "s3://bucket/tiles", "layer": "all", "metatile": 4,
                     "layout": "prefix-hash", "max_detail_zoom": 16}}}

\b
metatile         tiles of 256 pixels per side of an archive (4)
layout           prefix-hash, hash-prefix or plain,
                 or a pattern with {z} {x} {y}, and {hash} {prefix} {layer} {fmt} (plain)
layer, prefix    values of these
tile_size        pixels of a tile that is requested without a size (256)
max_detail_zoom  deepest zoom that has archives
min_zoom, max_zoom, formats

Slow and silent clients are disconnected. /metrics has the counts of all workers for Prometheus,
/api the OpenAPI document.

$ comal serve scenes.tacozip dem.parquet  # look at two archives in a browser
$ comal serve roads=s3://bucket/roads/meta.json --port 80 --workers 4  # in production
$ comal serve tiles/ --missing 204 --log all  # missing tiles as 204; log every request
$ comal serve --config serve.json --idle-timeout 75  # behind a load balancer
"""


@app.command("serve", help=_HELP)
@argument("sources", nargs=-1, metavar="PATH_OR_URL...")
@option("--host", "Address to listen on.", default="127.0.0.1")
@whole("--port", "Port to listen on.", 1, 65535, default=8000)
@whole("--workers", "Processes.", 1, 64, default=1)
@option("--prefix", "Path prefix of all addresses.", default="", metavar="/PATH")
@option("--public-url", "Scheme and host that clients see: https://example.org", metavar="URL")
@choice(
    "--missing",
    ["404", "204"],
    "Status of a tile that is missing within zooms and bounds.",
    default="404",
)
@option(
    "--cache-control", "Cache-Control of responses; empty for none.", default="public, max-age=3600"
)
@option("--cors", "Origins that may read; all by default.", multiple=True, metavar="ORIGIN")
@flag("--no-cors", "Let no other origin read.")
@options.negative("--no-viewer", "viewer", "Do not serve the viewer.")
@choice(
    "--log",
    ["all", "errors", "none"],
    "Requests that are logged as JSON lines on standard error.",
    default="errors",
)
@option(
    "--reload",
    "Seconds between checks for changed sources; 0 for never.",
    default=2.0,
    to="reload_seconds",
)
@option("--timeout", "Seconds for one request.", default=60.0)
@option(
    "--idle-timeout",
    "Seconds to wait for the headers of a request, and between requests of a connection; behind a"
    " load balancer, longer than it keeps connections.",
    default=5.0,
    type=click.FloatRange(0.5, 600),
    to="idle_seconds",
)
@option("--cache", "MiB of rendered pictures to keep.", default=128)
@whole(
    "--max-memory",
    "Replace a worker that uses more; at twice this, refuse work that needs more.",
    128,
    metavar="MIB",
)
@option("--server", "Has no effect: the server is uvicorn.", hidden=True)
@option(
    "--config",
    'JSON with more sources: {"sources": {"name": "path", "old": {"href": ..., ...}}}',
    type=click.Path(exists=True, dir_okay=False),
)
@flag("--lazy", "Do not look at sources before serving; they need not exist yet.")
@options.pass_style
def command(
    style: options.Style, /, sources: tuple[str, ...], *, config: str | None, **given: Any
) -> None:
    """Serve until told to stop."""
    from comal.server import mounts, process  # noqa: PLC0415 - brings the formats
    from comal.server.settings import ProcessSettings  # noqa: PLC0415 - as above

    process.check_installed()
    if given.pop("server") is not None:
        click.echo(
            "warning: --server has no effect and will be removed: the server is uvicorn", err=True
        )
    named = _named(sources) | (_configured(config) if config is not None else {})
    places = mounts.places(named)
    if not given.pop("lazy"):
        looked = {name: place for name, place in places.items() if place.options is None}
        _look_at({name: str(place.href) for name, place in looked.items()}, mounts.format_of)
    own = {name: given.pop(name) for name in ("host", "port", "workers", "idle_seconds")}
    own["max_memory"] = given.pop("max_memory")
    if given["public_url"] is None and own["host"] not in _EVERYWHERE:
        given["public_url"] = _address(own["host"], own["port"])
    settings = ProcessSettings(sources=places, settings=_settings(given), **own)
    process.check_address(own["host"], own["port"])
    _announce(settings, style)
    process.run(settings)


def _look_at(hrefs: dict[str, str], look: Callable[[str], str]) -> None:
    """Print the errors of sources that cannot be served now.

    They are served with their error and tried again; if none can be served, and trying again
    cannot help, the first error ends the command.
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
            click.echo(
                f"warning: {name} cannot be served now and will be tried again: {why}", err=True
            )


def _named(sources: tuple[str, ...]) -> dict[str, Any]:
    from comal.server import mounts  # noqa: PLC0415 - as above

    named: dict[str, Any] = {}
    for text in sources:
        match = _NAMED.fullmatch(text)
        if match is not None and not Path(text).exists():
            named[mounts.free_name(match[1], named)] = match[2]
        else:
            whole_path = text if "://" in text else str(Path(text).absolute())
            named[mounts.free_name(mounts.suggested_name(whole_path), named)] = text
    return named


def _configured(path: str) -> dict[str, Any]:
    more = strictjson.loads(Path(path).read_bytes(), path).get("sources")
    if not isinstance(more, dict):
        raise InvalidInputError("the configuration has no sources", where=path)
    return more


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _settings(given: dict[str, Any]) -> Any:
    from comal.server.settings import (  # noqa: PLC0415 - as above
        RequestLimits,
        Settings,
        normalised_prefix,
        origins,
    )

    seconds, cache = given.pop("timeout"), given.pop("cache") * MIB
    cors = not given.pop("no_cors") and (given["cors"] or True)
    return Settings(
        **given
        | {
            "prefix": normalised_prefix(given["prefix"]),
            "missing": int(given["missing"]),
            "cache_control": given["cache_control"] or None,
            "cors": origins(cors),
            "limits": RequestLimits(seconds=seconds, cache_bytes=cache),
        }
    )


def _announce(plan: Any, style: options.Style) -> None:
    public = plan.settings.public_url
    url = (public or _address(plan.host, plan.port)) + plan.settings.prefix
    if style.json:
        click.echo(json.dumps({"url": url + "/", "sources": list(plan.sources)}))
    elif not style.quiet:
        click.echo(f"serving {len(plan.sources)} at {url}/", err=True)
        if public is None:
            click.echo("  links are paths: STAC and OGC clients need --public-url", err=True)
        for name, place in plan.sources.items():
            click.echo(f"  {url}/{name}  {parse_href(place.href).label}", err=True)
    sys.stdout.flush()
