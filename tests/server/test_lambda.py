"""AWS Lambda by Mangum, as docs/serve.md says: function URLs, REST APIs and load balancers."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from mangum import Mangum

from comal import server
from tests.server.making import GZIPPED, PNG, crc

ADDRESS = {"host": "abc.lambda-url.eu-west-1.on.aws", "accept": "*/*"}


def function_url(path: str, **headers: str) -> dict[str, Any]:
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {**ADDRESS, **headers},
        "requestContext": {"http": {"method": "GET", "path": path, "sourceIp": "1.2.3.4"}},
        "isBase64Encoded": False,
    }


def rest_api(path: str, **headers: str) -> dict[str, Any]:
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": "GET",
        "headers": {**ADDRESS, **headers},
        "multiValueQueryStringParameters": {"ext": ["png", "mvt"]},
        "requestContext": {"path": f"/prod{path}", "stage": "prod", "httpMethod": "GET"},
        "body": None,
        "isBase64Encoded": False,
    }


def load_balancer(path: str, **headers: str) -> dict[str, Any]:
    return {
        "requestContext": {"elb": {"targetGroupArn": "arn"}},
        "httpMethod": "GET",
        "path": path,
        "queryStringParameters": {},
        "headers": {**ADDRESS, **headers},
        "body": "",
        "isBase64Encoded": False,
    }


@pytest.mark.usefixtures("own_loop")
@pytest.mark.parametrize("event", [function_url, rest_api, load_balancer])
def test_events(archives: dict[str, Path], event: Any) -> None:
    handler: Any = Mangum(server.app({"tiles": str(archives["tiles"])}, log="none"), lifespan="off")
    answer = handler(event("/tiles/1/0/1.png"), None)
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (200, True)
    assert base64.b64decode(answer["body"]) == PNG + b"1/0/1"
    tag = answer["headers"]["etag"]
    assert tag == crc(PNG + b"1/0/1")
    again = handler(event("/tiles/1/0/1.png", **{"if-none-match": tag}), None)
    assert (again["statusCode"], again["body"]) == (304, "")
    vector = handler(event("/tiles/0/0/0.mvt", **{"accept-encoding": "gzip"}), None)
    assert vector["headers"]["content-encoding"] == "gzip"
    assert base64.b64decode(vector["body"]) == GZIPPED
    assert handler(event("/tiles/9/0/1.png"), None)["statusCode"] == 404
