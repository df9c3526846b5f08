"""One HTTP server for every archive: tiles, samples, statistics, and the viewer.

`app` gives an ASGI application, which any ASGI server runs and any framework mounts;
`lambda_handler` answers events of AWS Lambda with one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.server.application import Application as Application
    from comal.server.application import app as app
    from comal.server.awslambda import lambda_handler as lambda_handler
    from comal.server.settings import RequestLimits as RequestLimits
    from comal.server.settings import Settings as Settings

# No module has the name of a function, so that importing one never hides the other.
_HOMES = {
    "Application": "application",
    "RequestLimits": "settings",
    "Settings": "settings",
    "app": "application",
    "lambda_handler": "awslambda",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - one table names both the homes and the exports


__getattr__ = exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
