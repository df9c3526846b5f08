"""Errors as answers: one table of statuses, and problem documents that tell nothing of the inside.

A document (RFC 9457) has a stable `code` and the `id` of the request, by which the log is found. It
never has a path, an upstream address or a version.
"""

from __future__ import annotations

from http import HTTPStatus

from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectChangedError,
    UnsafeContentError,
    UnsupportedVersionError,
)
from comal.server.answers import PROBLEM, Answer, json_answer

RETRY_AFTER = (b"retry-after", b"1")
_NOT_KEPT = (b"cache-control", b"no-store")

DAMAGED: tuple[type[ComalError], ...] = (
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    UnsafeContentError,
    UnsupportedVersionError,
)
"""Faults of the archive. Behind a server they are no fault of the request, so they are 500."""


class Refusal(Exception):  # noqa: N818 - it is an answer, raised where the request is understood
    """A request that is answered with a problem.

    Parameters
    ----------
    status
        HTTP status.
    code
        Stable name of the kind of problem.
    detail
        One sentence for people; nothing in it comes from inside the server.
    headers
        Further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(detail or code)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers


def not_found(
    detail: str = "nothing is here", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Refusal:
    """404."""
    return Refusal(404, "not-found", detail, headers)


def bad_request(detail: str) -> Refusal:
    """400."""
    return Refusal(400, "bad-request", detail)


def refusal_of(error: Exception) -> Refusal:
    """What an error becomes; one that is not ours is a bug and tells nothing."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, TimeoutError) and not isinstance(error, ComalError):
        return Refusal(504, "timeout", "it took too long")
    if isinstance(error, MemoryError):
        return Refusal(503, "overloaded", "there is not enough memory now", (RETRY_AFTER,))
    if not isinstance(error, ComalError):
        return Refusal(500, "internal", "the server failed")
    if isinstance(error, DAMAGED):
        return Refusal(500, "damaged", "what the archive holds here is damaged or not allowed")
    if isinstance(error, InvalidInputError):
        return Refusal(error.http_status, error.code, _about(error))
    headers = (RETRY_AFTER,) if isinstance(error, ObjectChangedError) else ()
    return Refusal(error.http_status, error.code, _title(error.http_status), headers)


def _about(error: ComalError) -> str:
    """What is wrong with the client's own words: those may be told back."""
    parts = [error.what]
    if error.found is not None:
        parts.append(f"found {error.found}")
    if error.expected is not None:
        parts.append(f"expected {error.expected}")
    return "; ".join(parts)[:400]


def _title(status: int) -> str:
    # 499 is nginx's for clients that went away; it is for the log and the counts alone.
    return "client closed request" if status == 499 else HTTPStatus(status).phrase.lower()


def problem_answer(refusal: Refusal, request_id: str) -> Answer:
    """The problem document of a refusal."""
    document = {
        "type": "about:blank",
        "title": _title(refusal.status),
        "status": refusal.status,
        "detail": refusal.detail or _title(refusal.status),
        "code": refusal.code,
        "id": request_id,
    }
    headers = [(b"x-request-id", request_id.encode()), *refusal.headers]
    if refusal.status >= 500 or refusal.status == 429:
        headers.append(_NOT_KEPT)
    return json_answer(document, status=refusal.status, kind=PROBLEM, headers=headers)
