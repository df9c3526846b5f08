"""The bytes of items: are they of the format that the footer says, are they there at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from comal.errors import shown
from comal.findings import OF_CONTENT, Findings
from comal.limits import MIB
from comal.plan import ByteRange
from comal.storage import Source
from comal.tortilla import spec

_AT_ONCE = 16 * MIB
_COUNT = 4_096
_BLOCK = 4 * MIB
_BEGINNING = 64


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of one item that are to be looked at."""

    offset: int
    size: int
    format: str
    place: str


def check_payloads(source: Source, payloads: Sequence[Payload], findings: Findings) -> None:
    """Read payloads and compare them with their formats; memory is bounded by a batch."""
    for batch in _batches(payloads):
        if len(batch) == 1 and batch[0].size > _AT_ONCE:
            _check_large(source, batch[0], findings)
            continue
        try:
            pieces = source.fetch([ByteRange(one.offset, one.size) for one in batch])
        except OF_CONTENT as error:
            findings.take_error(error, "tortilla-item", batch[0].place)
            continue
        for one, piece in zip(batch, pieces, strict=True):
            _judge(one, piece.data[:_BEGINNING], findings, zero=_is_zero(piece.data))


def _batches(payloads: Sequence[Payload]) -> Iterator[list[Payload]]:
    batch: list[Payload] = []
    size = 0
    for one in payloads:
        if batch and (size + one.size > _AT_ONCE or len(batch) >= _COUNT):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    if batch:
        yield batch


def _check_large(source: Source, one: Payload, findings: Findings) -> None:
    beginning, zero = b"", True
    try:
        with source.file("", one.offset, one.size) as file:
            while block := file.read(_BLOCK):
                beginning = beginning or block[:_BEGINNING]
                zero = zero and _is_zero(block)
    except OF_CONTENT as error:
        findings.take_error(error, "tortilla-item", one.place)
        return
    _judge(one, beginning, findings, zero=zero)


def _is_zero(data: bytes) -> bool:
    return data.count(0) == len(data)


def _judge(one: Payload, beginning: bytes, findings: Findings, *, zero: bool) -> None:
    name = spec.known_format(one.format) or one.format
    signatures = spec.SIGNATURES.get(name)
    if signatures is not None and not beginning.startswith(signatures):
        found = beginning[:8].hex(" ") if beginning else "nothing"
        findings.add(
            "tortilla-magic", one.place, f"the bytes do not begin as {shown(name)}: {found}"
        )
    if zero and one.size:
        findings.add(
            "tortilla-zero",
            one.place,
            f"all {one.size} bytes are zero; some early writers lost items so",
        )
