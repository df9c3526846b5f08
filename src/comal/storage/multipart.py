"""Uploads to S3 in parts whose last request has a condition, which obstore cannot make.

obstore signs their requests all the same, so credentials stay its business. It signs keys and no
queries, except that of an endpoint. So the URL of the key with a query is the endpoint, and ends in
``x-id=``: S3 ignores that name, and what obstore appends as the key becomes its value.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import quote, urlencode, urlsplit

import obstore

from comal.errors import ObjectNotFoundError, StorageError, shown, shown_path
from comal.limits import MIB
from comal.plan import Head
from comal.storage.cloud import LIFETIME, Address, guarding, signer_of
from comal.storage.config import StorageConfig
from comal.storage.http import Answer, HttpTransport
from comal.storage.httpwire import refusal
from comal.storage.location import Location
from comal.storage.remote import Ask, TransientError, retrying
from comal.storage.stores import (
    new_store,
    settings,
    store_errors,
    store_options,
    switched_on,
    without,
)

_BLOCK = MIB
_STEP = 8 * MIB
_PARTS = 256
"""Most parts of an upload, as each may take a request for credentials; stores take 10 000."""
# What other clients use by default, in MiB; awscli and boto3 8.
_STEPS = 8, 5, 6, 10, 15, 16, 20, 25, 32, 50, 64, 100, 128, 256, 512
_ENDPOINT = "endpoint_url_s3"
"""The endpoint that obstore prefers to any other."""
# Settings that go into headers, which a signed URL would have to cover.
_OTHERS = (
    *("server_side_encryption", "sse_kms_key_id", "sse_bucket_key_enabled"),
    "checksum_algorithm",
)
# Values of settings with which the store is said to know conditions.
_CONDITIONS = {"conditional_put": "etag", "copy_if_not_exists": "multipart"}
# Amazon S3 User Guide, error responses: these may come with a status of 200, after long waiting.
_BEFORE = timedelta(minutes=1)
_LISTED = b"Key", b"UploadId", b"Initiated"
_PASSING = frozenset({b"InternalError", b"SlowDown", b"ServiceUnavailable", b"RequestTimeout"})


def part_size(size: int) -> int:
    """How large the parts are in which a file of this size is uploaded."""
    return max(_STEP, -(-size // _PARTS))


def tag_of(digests: Sequence[bytes]) -> str:
    """The ETag, without quotes, of an object made of parts with these MD5s."""
    return f"{hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()}-{len(digests)}"


class Part(NamedTuple):
    """Some bytes of a file, which are a part of an object; parts are numbered from 1."""

    path: Path
    number: int
    offset: int
    size: int

    def blocks(self) -> Iterator[bytes]:
        """Its bytes."""
        left = self.size
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while left:
                block = file.read(min(_BLOCK, left))
                if not block:
                    raise StorageError("the file became shorter", where=shown_path(self.path))
                left -= len(block)
                yield block

    def digest(self) -> bytes:
        """Its MD5."""
        md5 = hashlib.md5(usedforsecurity=False)
        for block in self.blocks():
            md5.update(block)
        return md5.digest()


def parts_of(path: Path, size: int, step: int) -> list[Part]:
    """The parts of a file, all of `step` bytes but the last."""
    offsets = enumerate(range(0, size, step), 1)
    return [Part(path, number, at, min(step, size - at)) for number, at in offsets]


def holds(tag: str, path: Path, size: int) -> bool:
    """Whether an object in parts is known to have the bytes of a file, by its ETag without quotes.

    Only if its parts have a size that clients are known to use.
    """
    number = int(tag.partition("-")[2])
    steps = {part_size(size), *(step * MIB for step in _STEPS)}
    return any(
        tag_of([part.digest() for part in parts_of(path, size, step)]) == tag
        for step in steps
        if -(-size // step) == number
    )


class _Kept:
    """A credential provider that is asked again shortly before its credentials expire."""

    def __init__(self, provider: Callable[[], Mapping[str, Any]]) -> None:
        self._provider, self._lock = provider, threading.Lock()
        self._given: Mapping[str, Any] = {}

    def __call__(self) -> Mapping[str, Any]:
        with self._lock:  # one asks, the others wait
            expires = self._given.get("expires_at")
            if not self._given or (expires and expires < datetime.now(UTC) + _BEFORE):
                self._given = self._provider()
            return self._given


class Unfinished(NamedTuple):
    """An upload that was begun."""

    key: str
    number: str
    begun: datetime


class Multipart:
    """An upload in parts to a key of S3."""

    def __init__(self, location: Location, config: StorageConfig, address: Address) -> None:
        if config.credential_provider is not None:
            config = replace(config, credential_provider=_Kept(config.credential_provider))
        self._location, self._config, self._address = location, config, address
        self._http = HttpTransport(replace(config, http_headers={}))
        self._number, self.has_digest = "", True
        self.tries = 0
        """How often the last request was made."""

    @classmethod
    def to(cls, location: Location, config: StorageConfig) -> Multipart | None:
        """For a key; None where requests by signed URL do not do what is configured."""
        known = settings("s3", store_options("s3", config))
        told = any(switched_on(known.get(name)) for name in _OTHERS)
        if location.scheme != "s3" or told:
            return None
        if any(known.get(name, value) != value for name, value in _CONDITIONS.items()):
            return None
        with guarding(location, config):
            address = signer_of(location, config).address(location)
        return None if address is None else cls(location, config, address)

    def begin(self, headers: Mapping[str, str]) -> None:
        """Begin; the object will have these headers.

        `has_digest` says then whether its ETag is that of `tag_of`: with keys of KMS it is not.
        """
        answer = self._ask("POST", {"uploads": ""}, headers=headers)
        self._number = _field(answer.body, b"UploadId", self._location)
        self.has_digest = "kms" not in answer.headers.get("x-amz-server-side-encryption", "")

    def put(self, part: Part, sent: Callable[[int], None]) -> tuple[bytes, str]:
        """Upload a part; returns its MD5, with which S3 compares it, and its ETag.

        `sent` hears the size of each block, and may raise an error to stop.
        """
        digest = part.digest()
        told = {"Content-MD5": base64.b64encode(digest).decode()}

        def blocks() -> Iterator[bytes]:
            for block in part.blocks():
                sent(len(block))
                yield block

        query = {"partNumber": part.number, "uploadId": self._number}
        answer = self._ask("PUT", query, told, blocks, part.size)
        return digest, answer.headers.get("ETag", "")

    def finish(self, tags: Sequence[str], condition: Mapping[str, str], size: int) -> str | None:
        """Make the object of all parts, if the condition holds; returns its ETag, or None."""
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{html.escape(tag)}</ETag></Part>"
            for number, tag in enumerate(tags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        query, length = {"uploadId": self._number}, {"Content-Length": str(len(body))}
        told = {**length, **condition}
        answer = self._ask("POST", query, told, lambda: [body], size, taken=(409, 412))
        return _field(answer.body, b"ETag", self._location) if answer.status == 200 else None

    def give_up(self, other: Unfinished | None = None) -> None:
        """Abort the upload, or another one of the bucket."""
        number, key = (other.number, other.key) if other else (self._number, None)
        with suppress(ObjectNotFoundError):
            self._ask("DELETE", {"uploadId": number}, key=key)

    def unfinished(self) -> list[Unfinished]:
        """Uploads that were begun, and neither finished nor aborted, at the key and below it."""
        found, query = list[Unfinished](), {"uploads": "", "prefix": self._location.path}
        while True:
            body = self._ask("GET", query, key="").body
            for one in re.findall(rb"<Upload>(.*?)</Upload>", body, re.DOTALL):
                told = (_field(one, name, self._location) for name in _LISTED)
                key, number, begun = told
                found.append(Unfinished(key, number, datetime.fromisoformat(begun)))
            if b"<IsTruncated>true</IsTruncated>" not in body:
                break
            query |= {"key-marker": found[-1].key, "upload-id-marker": found[-1].number}
        key = self._location.path
        return [one for one in found if one.key == key or one.key.startswith(f"{key}/")]

    def _ask(
        self,
        method: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        blocks: Callable[[], Iterable[bytes]] = tuple,
        size: int = 0,
        *,
        key: str | None = None,
        taken: tuple[int, ...] = (),
    ) -> Answer:
        """Make a request for `size` bytes, again if a failure may pass.

        Statuses of `taken` are answers. Raises `AccessDeniedError`, `ObjectNotFoundError`,
        `StorageError`.
        """
        text = urlencode(query, quote_via=quote)
        told = {"Content-Length": str(size), **(headers or {})} if method != "GET" else {}

        tries = count(1)

        def tried(deadline: float) -> Answer:
            self.tries = next(tries)
            address = self._signed(method, text, key)
            answer = self._http.ask(address, method, told, blocks(), deadline)
            code = re.search(rb"<Error>.*?<Code>(\w+)</Code>", answer.body, re.DOTALL)
            if answer.status == 200 and code:
                raise _said(code[1], self._location)
            return answer

        with guarding(self._location, self._config):
            answer = retrying(self._config, self._location, size, tried)
            if answer.status in (200, 204, *taken):
                return answer
            raise refusal(answer.status, self._location)

    def _signed(self, method: str, query: str, key: str | None) -> Address:
        url = self._url(key)
        if not self._address.query:  # a public bucket
            return self._at(f"{url}?{query}")
        options = without("s3", store_options("s3", self._config), (_ENDPOINT,))
        options[f"aws_{_ENDPOINT}"] = f"{url}?{query}&x-id="
        options["virtual_hosted_style_request"] = True
        with store_errors(Ask(self._location, Head(0), None), last=True):
            store = new_store(self._location, options, self._config)
            span = timedelta(seconds=LIFETIME)
            return self._at(obstore.sign(cast("Any", store), cast("Any", method), "-", span))

    def _url(self, key: str | None) -> str:
        if key is None:
            return self._address.url.partition("?")[0]
        any_key = replace(self._location, path="-")
        address = signer_of(any_key, self._config).address(any_key)
        assert address is not None
        return address.url.partition("?")[0].removesuffix("-") + quote(key)

    def _at(self, url: str) -> Address:
        parts = urlsplit(url)
        return Address(*parts[:4], named=self._location)


def _field(body: bytes, name: bytes, where: Location) -> str:
    found = re.search(b"<%b>([^<]*)</%b>" % (name, name), body)
    if found is None:
        raise StorageError(
            "the store gave an answer that S3 does not give",
            where=where.label,
            found=shown(body[:200].decode(errors="replace")),
            expected=f"<{name.decode()}>",
        )
    return html.unescape(found[1].decode())


def _said(code: bytes, where: Location) -> Exception:
    if code in _PASSING:
        return TransientError(code.decode())
    return StorageError("the store failed", where=where.label, found=code.decode())
