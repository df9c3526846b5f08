"""The targets of the fuzzer, over their seeds and what little mutation each change has time for."""

from __future__ import annotations

import random

import pytest

from comal.errors import ComalError
from tests.fuzz.base import attempt
from tests.fuzz.targets import TARGETS

MUTANTS = 30
"""Of each target; the fuzzer makes millions."""


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_seeds_and_a_few_mutants(name: str) -> None:
    target = TARGETS[name]
    seeds = list(target.seeds())
    # The first run of a target imports libraries; on a busy machine everything takes longer.
    taken = [attempt(target, data, seconds=30) for data in seeds]
    assert any(taken), "what a writer made is refused"
    numbers = random.Random(name)
    for _ in range(MUTANTS):
        attempt(target, mutated(numbers.choice(seeds), numbers), seconds=10)


def mutated(data: bytes, numbers: random.Random) -> bytes:
    """The bytes with some changed, cut out or put in twice."""
    found = bytearray(data)
    for _ in range(numbers.randint(1, 4)):
        at = numbers.randrange(len(found) + 1)
        piece = found[at : at + numbers.randint(1, 16)]
        match numbers.randrange(3):
            case 0:
                found[at : at + 1] = bytes([numbers.randrange(256)])
            case 1:
                del found[at : at + len(piece)]
            case _:
                found[at:at] = piece
    return bytes(found)


def test_what_is_refused_by_a_target_is_seen() -> None:
    """The runner itself: a foreign exception comes out, an error of comal does not."""
    with pytest.raises(ComalError):
        TARGETS["zip"].run(b"")
    assert not attempt(TARGETS["zip"], b"")
