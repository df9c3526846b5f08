"""`app`: an application from sources and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comal.server.application import Application
from comal.server.settings import RequestLimits, Settings, normalised_prefix, origins


def app(
    sources: Any,
    *,
    prefix: str = "",
    public_url: str | None = None,
    missing: int = 404,
    cache_control: str | None = "public, max-age=3600",
    cors: bool | str | Sequence[str] | None = True,
    reload_seconds: float = 2.0,
    log: str = "errors",
    viewer: bool = True,
    metrics: bool = True,
    memory_map: bool = False,
    linked_origins: Sequence[str] | None = None,
    limits: RequestLimits | None = None,
) -> Application:
    """An ASGI application that serves archives.

    It can be run by any ASGI server, and mounted in Starlette and FastAPI; `comal serve` runs it in
    uvicorn. Sources are opened when they are first asked for. No address that a client sends is
    ever fetched.

    Parameters
    ----------
    sources
        A mapping of names to paths, URLs or open readers, or a sequence of these, which get names
        from where they lie: ``dem`` for ``/data/dem.parquet``, ``roads`` for
        ``s3://bucket/roads/meta.json``.
    prefix
        Path before all routes, such as ``/maps``.
    public_url
        Scheme and host that clients see (``https://maps.example.org``), for documents that other
        programs read. Without it such links are paths; headers of requests are never believed.
    missing
        Status of a tile that is absent within the zooms and bounds of its set: 404 or 204.
    cache_control
        ``Cache-Control`` of what is made of archives, unless an archive names its own; None for
        none.
    cors
        True for every origin, None for none, or the origins that may read.
    reload_seconds
        A source is looked at for changes at most this often; 0 is never.
    log
        ``all`` requests, ``errors`` or ``none``, to the logger ``comal.server.requests``.
    viewer
        Whether the root is the viewer.
    metrics
        Whether there is ``/metrics``.
    memory_map
        Whether local RaQuet and Tapalcatl files that are named by path are mapped into memory, as
        `comal.storage.StorageConfig` says: reading costs less, and a file that something else
        makes shorter in place kills the worker. Readers that are open stay as they were opened.
    linked_origins
        Origins that an archive may lead to beside its own, as `comal.storage.StorageConfig` says:
        ``https://host[:port]``, ``s3://bucket``. What is not named here is not asked, for the
        author of an archive is a stranger. By default those of ``COMAL_LINKED_ORIGINS``.
    limits
        Upper bounds on what clients may ask for at once.

    Raises
    ------
    InvalidInputError
        A name or an option that cannot be used.
    """
    settings = Settings(
        prefix=normalised_prefix(prefix),
        public_url=public_url,
        missing=missing,
        cache_control=cache_control,
        cors=origins(cors),
        reload_seconds=reload_seconds,
        log=log,
        viewer=viewer,
        metrics=metrics,
        memory_map=memory_map,
        linked_origins=None if linked_origins is None else tuple(linked_origins),
        limits=limits or RequestLimits(),
    )
    return Application(sources, settings)
