"""AWS Lambda: events of function URLs and of API Gateway (both payload versions) as requests."""

from __future__ import annotations

import asyncio
import base64
import weakref
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from comal.server.application import Application, app

_SAFE = "/%:@!$&'()*+,;=~-._"
_LARGEST = 4_400_000
"""Bytes that fit an answer of 6 MB in base64."""

Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]


def lambda_handler(sources: Any, **options: Any) -> Handler:
    """A handler for AWS Lambda.

    Parameters
    ----------
    sources
        An `Application`, or sources as `comal.server.app` takes them.
    **options
        Keywords of `comal.server.app`.

    Returns
    -------
    A function of event and context. It takes events of function URLs, of HTTP APIs (payload 2.0)
    and of REST APIs and load balancers (payload 1.0), and answers in their shape.

    Examples
    --------
    >>> handler = comal.server.lambda_handler({"roads": "s3://bucket/roads/meta.json"})
    """
    application = sources if isinstance(sources, Application) else app(sources, **options)
    # One loop for the life of the sandbox: connections and caches stay warm between events.
    loop = asyncio.new_event_loop()

    def handler(event: Mapping[str, Any], context: Any = None) -> dict[str, Any]:
        del context
        return loop.run_until_complete(_answered(application, event))

    weakref.finalize(handler, loop.close)
    return handler


async def _answered(application: Application, event: Mapping[str, Any]) -> dict[str, Any]:
    second = event.get("version") == "2.0" or "rawPath" in event
    collected = _Collected()
    try:
        scope = _scope_of_second(event) if second else _scope_of_first(event)
    except (AttributeError, KeyError, TypeError, ValueError):
        # Text in JSON may be half a character, and who may invoke the function may send anything.
        collected.refuse(400, "bad request", "the event is none of a request", "bad-request")
    else:
        await application(scope, _no_body, collected.send)
    if len(collected.body) > _LARGEST:
        collected.refuse(413, "content too large", "ask for a range", "payload-too-large")
        collected.headers.append(("accept-ranges", "bytes"))
    return collected.as_second() if second else collected.as_first()


async def _no_body() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


def _scope(
    method: str, path: str, query: bytes, headers: list[tuple[bytes, bytes]], root: str
) -> dict[str, Any]:
    raw = quote(path or "/", safe=_SAFE)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method.upper(),
        "scheme": "https",
        "path": path or "/",
        "raw_path": raw.encode("ascii"),
        "query_string": query,
        "root_path": root,
        "headers": headers,
    }


def _pair(name: object, value: object) -> tuple[bytes, bytes]:
    return str(name).lower().encode("latin-1", "replace"), str(value).encode("latin-1", "replace")


def _scope_of_second(event: Mapping[str, Any]) -> dict[str, Any]:
    context = event.get("requestContext") or {}
    stage = context.get("stage") or "$default"
    path = event.get("rawPath") or "/"
    # A stage that has a name stands before the path.
    root = f"/{stage}" if stage != "$default" and path.startswith(f"/{stage}/") else ""
    method = (context.get("http") or {}).get("method", "GET")
    headers = [_pair(name, value) for name, value in (event.get("headers") or {}).items()]
    query = (event.get("rawQueryString") or "").encode("ascii", "ignore")
    return _scope(method, path, query, headers, root)


def _scope_of_first(event: Mapping[str, Any]) -> dict[str, Any]:
    context = event.get("requestContext") or {}
    headers = [_pair(*one) for one in _listed(event, "multiValueHeaders", "headers")]
    pairs = _listed(event, "multiValueQueryStringParameters", "queryStringParameters")
    # Load balancers pass parameters on as they came, API Gateway decodes them.
    encoded = "elb" in context
    query = "&".join(f"{name}={value}" for name, value in pairs) if encoded else urlencode(pairs)
    path = event.get("path") or "/"
    whole = str(context.get("path") or path)
    root = whole[: -len(path)] if whole != path and whole.endswith(path) else ""
    return _scope(event.get("httpMethod", "GET"), root + path, query.encode(), headers, root)


def _listed(event: Mapping[str, Any], many: str, single: str) -> list[tuple[str, Any]]:
    """Names and values, from the table with a list of each where there is one."""
    if event.get(many):
        return [(name, value) for name, values in event[many].items() for value in values]
    return list((event.get(single) or {}).items())


class _Collected:
    """What the application sends, put together."""

    def __init__(self) -> None:
        self.status = 500
        self.headers: list[tuple[str, str]] = []
        self.body = b""

    async def send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in message["headers"]
            ]
        else:
            self.body += message.get("body", b"")

    def refuse(self, status: int, title: str, detail: str, code: str) -> None:
        """A problem instead of what was collected."""
        self.status = status
        self.body = (
            f'{{"type":"about:blank","title":"{title}","status":{status},'
            f'"detail":"{detail}","code":"{code}"}}'
        ).encode()
        self.headers = [("content-type", "application/problem+json")]

    def as_second(self) -> dict[str, Any]:
        """The answer with one line for each header, as payload 2.0 has it."""
        joined = {name: ", ".join(values) for name, values in self._lines().items()}
        return {
            "statusCode": self.status,
            "body": base64.b64encode(self.body).decode("ascii"),
            "isBase64Encoded": True,
            "headers": joined,
        }

    def as_first(self) -> dict[str, Any]:
        """The answer with all lines of headers as well, as payload 1.0 has it."""
        return {**self.as_second(), "multiValueHeaders": self._lines()}

    def _lines(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, value in self.headers:
            found.setdefault(name, []).append(value)
        return found
