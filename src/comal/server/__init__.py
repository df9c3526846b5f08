"""One HTTP server for every archive: tiles, samples, statistics, and the viewer.

`app` gives an ASGI application, which any ASGI server runs and any framework mounts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.server.application import Application as Application
    from comal.server.application import app as app
    from comal.server.settings import RequestLimits as RequestLimits
    from comal.server.settings import Settings as Settings

__all__, __getattr__, __dir__ = exports(__name__)
