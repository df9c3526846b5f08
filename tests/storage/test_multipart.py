"""Uploads in parts to S3: right signatures, right conditions, and bytes that are compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

import comal
from comal.errors import AccessDeniedError, ConflictError, StorageError
from comal.limits import MIB
from comal.storage import StorageConfig, multipart, storeobject, targets, upload
from comal.storage.http import Answer
from comal.storage.location import StorePath, parse_href
from comal.storage.multipart import Multipart, parts_of
from tests.servers.s3 import BUCKET, S3Server
from tests.storage.boxes import Box

KEYS = {
    "access_key_id": "AKIDEXAMPLE",
    "secret_access_key": "wJalr+/EXAMPLE",
    "region": "eu-west-1",
}
ODD = "a b/é+%25&=?#x.tif"
NEW = b"mine" + bytes(range(256)) * 40


def made(config: StorageConfig, key: str = "a/b") -> Multipart:
    found = Multipart.to(parse_href(f"s3://{BUCKET}/{key}"), config)
    assert found is not None
    return found


# -- signatures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a/b", ODD.replace("?", "").replace("#", "")])
@pytest.mark.parametrize(("token", "pays"), [("", False), ("session/token+==", True)])
@pytest.mark.parametrize("endpoint", ["", "http://127.0.0.1:9000"])
@pytest.mark.parametrize("virtual", [True, False])
def test_requests_are_signed_as_botocore_signs_them(
    virtual: bool, endpoint: str, token: str, pays: bool, key: str
) -> None:
    from botocore.auth import S3SigV4QueryAuth  # type: ignore[import-untyped]
    from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
    from botocore.credentials import Credentials  # type: ignore[import-untyped]

    options: dict[str, Any] = {**KEYS, "virtual_hosted_style_request": virtual}
    options |= {"request_payer": True} if pays else {}
    if endpoint and virtual:
        endpoint = endpoint.replace("127.0.0.1", "127.0.0.1/host")
    options |= ({"endpoint": endpoint} if endpoint else {}) | ({"token": token} if token else {})
    ours = made(StorageConfig(s3=options), key)
    keys = Credentials(KEYS["access_key_id"], KEYS["secret_access_key"], token or None)
    for method, query in (("POST", "uploads="), ("PUT", "partNumber=7&uploadId=a%2Bb~_.%2F%3D")):
        url = ours._signed(method, query, None).url
        own = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
        assert {*own} > {name.partition("=")[0] for name in query.split("&")}
        assert own.pop("x-id") == "/-"

        class At(S3SigV4QueryAuth):  # type: ignore[misc]  # untyped
            """Signs for the same second."""

            def _modify_request_before_signing(self, request: Any) -> None:
                request.context["timestamp"] = own["X-Amz-Date"]  # noqa: B023 - called at once
                super()._modify_request_before_signing(request)

        payer = "&x-amz-request-payer=requester" if pays else ""
        request = AWSRequest(method, re.sub(r"&X-Amz.*", payer, url))
        At(keys, "s3", "eu-west-1", expires=int(own["X-Amz-Expires"])).add_auth(request)
        theirs = dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))
        assert own["X-Amz-Signature"] == theirs["X-Amz-Signature"]


def test_public_buckets_are_not_signed() -> None:
    ours = made(StorageConfig(s3={"skip_signature": True, "region": "eu-west-1"}))
    assert ours._signed("PUT", "partNumber=1", None).url.endswith("/a/b?partNumber=1")


@pytest.mark.parametrize(
    "option",
    [
        {"server_side_encryption": "AES256"},
        {"sse_kms_key_id": "k"},
        {"checksum_algorithm": "SHA256"},
        {"copy_if_not_exists": "header: cf-copy-destination-if-none-match: *"},
        {"conditional_put": "disabled"},
        {"sse_customer_key_base64": "k"},
    ],
)
def test_settings_that_a_signed_url_does_not_follow(option: dict[str, Any]) -> None:
    config = StorageConfig(s3={**KEYS, **option})
    assert Multipart.to(parse_href(f"s3://{BUCKET}/a"), config) is None


def test_the_endpoint_that_obstore_prefers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000")
    ours = made(StorageConfig(s3={**KEYS, "endpoint": "http://127.0.0.1:1"}))
    url = ours._signed("PUT", "partNumber=1", None).url
    assert url.startswith(f"http://127.0.0.1:9000/{BUCKET}/a/b?partNumber=1&x-id=/-&X-Amz-")


# -- bytes -----------------------------------------------------------------------------------------


@pytest.fixture
def box(
    bucket: tuple[Box, S3Server], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Box, S3Server]]:
    monkeypatch.setattr(storeobject, "SINGLE", 1000)
    monkeypatch.setattr(multipart, "_STEP", 5 * MIB)  # S3 takes no smaller parts
    own, server = bucket
    yield bucket
    server.faults.fault = lambda *_: ""
    assert server.end_uploads(parse_href(own.target("x")).path[:-1]) == []


def patient(place: StorePath, **options: Any) -> StorageConfig:
    """The settings of a place, with time for parts of some megabytes on a machine that is busy."""
    config: StorageConfig = place.config
    return replace(config, total_timeout=60.0, idle_timeout=30.0, **options)


def test_many_parts_with_what_the_object_is(box: tuple[Box, S3Server], tmp_path: Path) -> None:
    own, server = box
    data = bytes(range(251)) * (16 * MIB // 251)
    config = patient(own.target("x"), cache_control="max-age=60")
    with targets.new_file(StorePath(str(own.target("x.tif")), config), False) as file:
        file.write(data)
    assert own.files() == {"x.tif": data}
    head = _client(server).head_object(Bucket=BUCKET, Key=parse_href(own.target("x.tif")).path)
    assert (head["ContentType"], head["CacheControl"]) == ("image/tiff", "max-age=60")
    (tmp_path / "x").write_bytes(data)
    digests = [part.digest() for part in parts_of(tmp_path / "x", len(data), 5 * MIB)]
    assert head["ETag"] == f'"{multipart.tag_of(digests)}"'
    assert len(digests) == 4


def test_a_provider_is_asked_once_for_all_parts(box: tuple[Box, S3Server], tmp_path: Path) -> None:
    """And again before what it gave expires."""
    own, server = box
    path, calls = tmp_path / "x", list[datetime]()
    path.write_bytes(bytes(21 * MIB))
    for name, lasts, expected in (("a", timedelta(hours=1), 1), ("b", timedelta(seconds=30), 7)):

        def given() -> dict[str, Any]:
            calls.append(datetime.now(UTC))
            keys = {"access_key_id": "testing", "secret_access_key": "testing"}
            return {**keys, "token": None, "expires_at": calls[-1] + lasts}  # noqa: B023

        options = {"endpoint": server.endpoint, "region": "us-east-1"}
        config = patient(own.target("x"), s3=options, credential_provider=given)
        uploads = multipart.Multipart.to(parse_href(own.target(name)), config)
        assert uploads is not None
        del calls[:]
        uploads.begin({})
        tags = [uploads.put(part, lambda _: None)[1] for part in parts_of(path, 21 * MIB, 5 * MIB)]
        uploads.finish(tags, {"If-None-Match": "*"}, 21 * MIB)
        assert own.files()[name] == path.read_bytes()
        assert len(calls) == expected  # seven requests


def test_what_is_sent_is_compared(box: tuple[Box, S3Server], tmp_path: Path) -> None:
    """S3 gets the MD5 of each part with it; a file may change between both."""
    own, _ = box
    path, real = tmp_path / "x", multipart.Part.blocks
    path.write_bytes(NEW)
    reads = []

    def changing(part: multipart.Part) -> Iterator[bytes]:
        reads.append(part)
        path.write_bytes(NEW if len(reads) < 2 else NEW[::-1])
        return real(part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multipart.Part, "blocks", changing)
        with pytest.raises(StorageError):
            storeobject.StoreObject(own.target("x")).publish(path, None, [], compare=True)
    assert own.files() == {}
    part = parts_of(path, len(NEW), MIB)[0]
    path.write_bytes(NEW[:9])
    with pytest.raises(StorageError, match="shorter"):
        part.digest()


def test_errors_that_come_with_success(box: tuple[Box, S3Server]) -> None:
    """S3 begins to answer before it is done."""
    own, server = box
    body = b"<Error><Code>%b</Code></Error>"
    for code, kind in ((b"InternalError", None), (b"InvalidPart", StorageError)):
        left, application = [1], server.faults.application

        def answer(environ: dict[str, Any], start: Any) -> Any:
            finishes = "uploadId" in environ["QUERY_STRING"] and environ["REQUEST_METHOD"] == "POST"
            if finishes and left:  # noqa: B023 - called in this turn
                left.pop()  # noqa: B023
                start("200 OK", [("Content-Type", "application/xml")])
                return [body % code]  # noqa: B023
            return application(environ, start)  # noqa: B023

        server.faults.application = answer
        try:
            if kind is None:
                own.write("x", NEW)
                assert own.files() == {"x": NEW}
            else:
                with pytest.raises(kind, match=code.decode()):
                    own.write("y", NEW)
                assert own.files() == {"x": NEW}
        finally:
            server.faults.application = application


def test_nothing_is_read_back(box: tuple[Box, S3Server], tmp_path: Path) -> None:
    """Not even with keys of KMS, whose ETags tell nothing: S3 has compared each part."""
    own, server = box
    path = tmp_path / "x"
    path.write_bytes(NEW)
    for name in ("plain", "kms"):
        if name == "kms":
            _encrypt(server)
        try:
            del server.faults.seen[:]
            storeobject.StoreObject(own.target(name)).publish(path, None, [], compare=True)
        finally:
            _client(server).delete_bucket_encryption(Bucket=BUCKET)
        assert own.files()[name] == NEW
        assert [one for one in server.faults.seen if one.startswith(("GET", "HEAD"))] == []


def _client(server: S3Server) -> Any:
    import boto3

    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1", **keys)


def _encrypt(server: S3Server) -> None:
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}
    _client(server).put_bucket_encryption(
        Bucket=BUCKET, ServerSideEncryptionConfiguration={"Rules": [rule]}
    )


def test_a_replaced_object_is_the_one_that_was_seen(box: tuple[Box, S3Server]) -> None:
    """Also when somebody writes it while the parts are on their way."""
    own, server = box
    own.put("x", b"mine: old")

    def strike(_: int, request: str) -> str:
        if "partNumber" in request:
            own.put("x", b"another's")
        return ""

    server.faults.fault = strike
    with pytest.raises(ConflictError, match="another writer"):
        own.write("x", NEW, overwrite=True)
    assert own.files() == {"x": b"another's"}


# -- what is compared and what is left -------------------------------------------------------------


@pytest.mark.parametrize("step", [None, 5 * MIB])
def test_objects_of_other_clients_are_compared_by_their_listing(
    step: int | None, bucket: tuple[Box, S3Server], tmp_path: Path
) -> None:
    from boto3.s3.transfer import TransferConfig

    own, server = bucket
    path, key = tmp_path / "x.bin", parse_href(own.target("x.bin")).path
    path.write_bytes(bytes(range(256)) * (17 * MIB // 256) + b"end")
    how = {"multipart_chunksize": step, "multipart_threshold": step} if step else {}
    _client(server).upload_file(str(path), BUCKET, key, Config=TransferConfig(**how))
    del server.faults.seen[:]
    target = StorePath(str(own.target("x.bin")), patient(own.target("x.bin")))
    assert comal.sync(path, target).equal.objects == 1
    assert [one for one in server.faults.seen if one.startswith("GET") and "?" not in one] == []
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ConflictError, match="differs"):
        comal.sync(path, target)


def test_unfinished_uploads_are_removed_after_a_day(
    bucket: tuple[Box, S3Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, server = bucket
    top = parse_href(own.target("x")).path
    client = _client(server)
    for key in (top, f"{top}/DATA/a b", f"{top}y", f"{top}/DATA/{ODD}"):
        client.create_multipart_upload(Bucket=BUCKET, Key=key)
    monkeypatch.setattr(upload, "_LEFT_UPLOAD", timedelta(days=365 * 100))
    assert targets.clean(own.target("x")) == []  # all are of 2010 here
    monkeypatch.undo()
    gone = targets.clean(own.target("x"))
    expected = [own.target("x"), own.target("x/DATA/a b"), own.target(f"x/DATA/{ODD}")]
    assert sorted(map(str, gone)) == sorted(map(str, expected))
    left = client.list_multipart_uploads(Bucket=BUCKET, Prefix=top)["Uploads"]
    assert [one["Key"] for one in left] == [f"{top}y"]
    client.abort_multipart_upload(Bucket=BUCKET, Key=f"{top}y", UploadId=left[0]["UploadId"])


def test_pages_of_unfinished_uploads(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    text = (
        "<Upload><Key>a/{0}&amp;</Key><UploadId>u{0}</UploadId><Initiated>{1}</Initiated></Upload>"
    )

    def answer(_: Any, method: str, query: dict[str, Any], **more: Any) -> Any:
        asked.append({**query})
        number = len(asked)
        more_to_come = b"<IsTruncated>true</IsTruncated>" * (number < 3)
        body = text.format(number, "2026-01-02T03:04:05.000Z").encode() + more_to_come
        return Answer(200, {}, body)

    monkeypatch.setattr(Multipart, "_ask", answer)
    found = made(s3_server.config, "a").unfinished()
    assert [one.key for one in found] == ["a/1&", "a/2&", "a/3&"]
    assert found[0].begun == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert [one.get("upload-id-marker") for one in asked] == [None, "u1", "u2"]


def test_who_may_not_write_is_told(box: tuple[Box, S3Server]) -> None:
    own, server = box
    server.faults.fault = lambda _, request: "403 No" if "partNumber" in request else ""
    with pytest.raises(AccessDeniedError, match="may write there"):
        own.write("x", NEW)
    server.faults.fault = lambda *_: ""
    assert own.files() == {}
