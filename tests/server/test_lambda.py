"""Events of AWS Lambda, in the shapes that AWS documents."""

from __future__ import annotations

import base64
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import server
from tests.server.making import GZIPPED, PNG, VECTOR, crc, picture


@pytest.fixture
def handler(archives: dict[str, Path]) -> Any:
    return server.lambda_handler({"tiles": {"href": str(archives["tiles"])}})


def second(path: str, query: str = "", stage: str = "$default", **headers: str) -> dict[str, Any]:
    """A function URL, or an HTTP API with payload 2.0."""
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"host": "abc.lambda-url.eu-west-1.on.aws", "accept": "*/*", **headers},
        "requestContext": {
            "accountId": "anonymous",
            "http": {"method": "GET", "path": path, "protocol": "HTTP/1.1", "sourceIp": "1.2.3.4"},
            "stage": stage,
            "timeEpoch": 1700000000000,
        },
        "isBase64Encoded": False,
    }


def first(path: str, method: str = "GET", **headers: str) -> dict[str, Any]:
    """A REST API with a stage, payload 1.0."""
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "queryStringParameters": {"ext": "mvt"},
        "multiValueQueryStringParameters": {"ext": ["png", "mvt"]},
        "requestContext": {"path": "/prod" + path, "stage": "prod", "httpMethod": method},
        "body": None,
        "isBase64Encoded": False,
    }


def test_function_url(handler: Any) -> None:
    answer = handler(second("/tiles/1/0/1.png"), None)
    assert answer["statusCode"] == 200
    assert answer["isBase64Encoded"] is True
    assert base64.b64decode(answer["body"]) == PNG + b"1/0/1"
    assert answer["headers"]["content-type"] == "image/png"
    tag = answer["headers"]["etag"]
    assert tag == crc(PNG + b"1/0/1")
    again = handler(second("/tiles/1/0/1.png", **{"if-none-match": tag}), None)
    assert (again["statusCode"], again["body"]) == (304, "")
    missing = handler(second("/tiles/9/0/1.png"), None)
    assert missing["statusCode"] == 404
    assert missing["headers"]["content-type"] == "application/problem+json"


def test_http_api_with_a_stage(handler: Any) -> None:
    answer = handler(second("/dev/tiles.json", "ext=mvt", "dev"), None)
    assert answer["statusCode"] == 200
    assert b'"/dev/tiles/{z}/{x}/{y}.mvt"' in base64.b64decode(answer["body"])


def test_rest_api(handler: Any) -> None:
    answer = handler(first("/tiles/0/0/0.mvt", **{"Accept-Encoding": "gzip"}), None)
    assert base64.b64decode(answer["body"]) == GZIPPED
    assert answer["multiValueHeaders"]["content-encoding"] == ["gzip"]
    document = handler(first("/tiles.json"), None)
    assert b'"/prod/tiles/{z}/{x}/{y}.mvt"' in base64.b64decode(document["body"])
    head = handler(first("/tiles/0/0/0.png", "HEAD"), None)
    assert (head["statusCode"], head["body"]) == (200, "")
    assert handler(first("/tiles/0/0/0.png", "POST"), None)["statusCode"] == 405


def test_load_balancer(handler: Any) -> None:
    event = {
        "requestContext": {"elb": {"targetGroupArn": "arn"}},
        "httpMethod": "GET",
        "path": "/tiles.json",
        "queryStringParameters": {"ext": "m%76t"},
        "headers": {"accept": "*/*"},
        "body": "",
        "isBase64Encoded": False,
    }
    assert b".mvt" in base64.b64decode(handler(event)["body"])


def test_odd_events(handler: Any) -> None:
    for event in (
        {},
        {"version": "2.0"},
        {"version": "2.0", "rawPath": "/%00"},
        {"path": "/" + "x" * 9000, "httpMethod": "GET"},
        {"version": "2.0", "rawPath": "/tiles/ä/0/0", "headers": {"x": "\u2603"}},
    ):
        assert handler(event, None)["statusCode"] in {200, 400, 404, 414}


def test_what_does_not_fit_is_413(tmp_path: Path) -> None:
    from comal import tortilla

    path = tmp_path / "a.tortilla"
    payload = bytes(range(256)) * 20_000
    tortilla.create([tortilla.Sample(id="big", path=payload, file_format="BYTES")], path)
    handler = server.lambda_handler(server.app({"a": str(path)}))
    assert handler(second("/a/data/big"), None)["statusCode"] == 413
    part = handler(second("/a/data/big", range="bytes=0-9"), None)
    assert (part["statusCode"], base64.b64decode(part["body"])) == (206, payload[:10])


# -- what a proxy does to bytes and headers --------------------------------------------------------


def bodies(answer: dict[str, Any]) -> bytes:
    """The bytes that the proxy sends on."""
    assert answer["isBase64Encoded"] is True
    return base64.b64decode(answer["body"], validate=True)


@pytest.fixture
def everything(archives: dict[str, Path]) -> Any:
    sources: dict[str, Any] = {name: str(path) for name, path in archives.items()}
    return server.lambda_handler(sources, log="none")


@pytest.mark.parametrize("make", [first, second], ids=["1.0", "2.0"])
def test_deflated_tiles_are_gzip_for_those_who_take_it(everything: Any, make: Any) -> None:
    plain = VECTOR + b"1/0/1"
    accepting = everything(make("/tiles/1/0/1.txt", **{"accept-encoding": "gzip, br"}), None)
    assert accepting["headers"]["content-encoding"] == "gzip"
    assert gzip.decompress(bodies(accepting)) == plain
    other = everything(make("/tiles/1/0/1.txt", **{"accept-encoding": "identity"}), None)
    assert "content-encoding" not in other["headers"]
    assert bodies(other) == plain


@pytest.mark.parametrize("make", [first, second], ids=["1.0", "2.0"])
def test_pictures_are_the_bytes_that_they_were(everything: Any, make: Any) -> None:
    answer = everything(make("/dem/1/0/0.png"), None)
    assert answer["headers"]["content-type"] == "image/png"
    assert int(answer["headers"]["content-length"]) == len(bodies(answer))
    assert picture(bodies(answer)).shape == (64, 64, 4)


def test_repeated_parameters_come_whole(everything: Any) -> None:
    want = everything(second("/rgb/1/0/0.npy", "bidx=3&bidx=1&return_mask=false"), None)
    array = np.load(io.BytesIO(bodies(want)))
    assert array.shape == (2, 64, 64)
    event = first("/rgb/1/0/0.npy")
    event["queryStringParameters"] = {"bidx": "1", "return_mask": "false"}
    event["multiValueQueryStringParameters"] = {"bidx": ["3", "1"], "return_mask": ["false"]}
    np.testing.assert_array_equal(np.load(io.BytesIO(bodies(everything(event, None)))), array)
    decoded = first("/scenes/items")
    decoded["queryStringParameters"] = {"filter": "split = 'train' AND cloud_cover < 20"}
    decoded["multiValueQueryStringParameters"] = None
    document = json.loads(bodies(everything(decoded, None)))
    assert [one["id"] for one in document["features"]] == ["scene 1"]


def test_repeated_headers_come_whole(everything: Any, archives: dict[str, Path]) -> None:
    event = first("/scenes/items", **{"Accept-Encoding": "gzip"})
    event["multiValueQueryStringParameters"] = event["queryStringParameters"] = None
    event["multiValueHeaders"]["Accept-Encoding"] = ["br", "gzip"]
    answer = everything(event, None)
    assert answer["multiValueHeaders"]["content-encoding"] == ["gzip"]
    assert json.loads(gzip.decompress(bodies(answer)))["numberMatched"] == 6
    closed = server.lambda_handler({"scenes": str(archives["scenes"])}, cors=["https://a.example"])
    event = second("/scenes/items", **{"origin": "https://a.example", "accept-encoding": "gzip"})
    answer = closed(event, None)
    assert set(answer["headers"]["vary"].split(", ")) == {"accept-encoding", "origin"}
    event = first("/scenes/items", Origin="https://a.example", **{"Accept-Encoding": "gzip"})
    event["multiValueQueryStringParameters"] = event["queryStringParameters"] = None
    assert set(closed(event, None)["multiValueHeaders"]["vary"]) == {"accept-encoding", "origin"}


HALF = "\ud800"


@pytest.mark.parametrize(
    "event",
    [
        second(f"/tiles/{HALF}"),
        second("/tiles/", HALF, x=HALF),
        {**second("/"), "requestContext": "none"},
        {**second("/"), "rawPath": 7},
        {**second("/"), "headers": ["a"]},
        first(f"/{HALF}"),
        {**first("/"), "multiValueQueryStringParameters": {"a": [HALF]}},
        {**first("/"), "multiValueHeaders": {"a": 1}},
        {**first("/"), "httpMethod": None},
        {},
    ],
)
def test_what_is_no_event_of_a_request(handler: Any, event: dict[str, Any]) -> None:
    answer = handler(event, None)
    assert answer["statusCode"] in {200, 400, 404, 405}
    assert answer["isBase64Encoded"] is True
