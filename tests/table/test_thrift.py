"""The Thrift compact protocol against an encoder of our own, written from its specification."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table.tables import varint, zigzag

from comal.errors import InvalidMetadataError
from comal.table.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    TRUE,
    CompactReader,
)

Value = tuple[int, Any]
"""A type, and what it is made of: a number, bytes, or values."""


def encoded(value: Value, *, inside: bool = False) -> bytes:  # noqa: PLR0911 - one for each type
    """A value; `inside` of a list or map a boolean takes a byte."""
    kind, content = value
    if kind in {TRUE, FALSE}:
        return bytes([kind]) if inside else b""
    if kind == BYTE:
        return bytes([content])
    if kind in {I16, I32, I64}:
        return zigzag(content)
    if kind == DOUBLE:
        return bytes(content)
    if kind == BINARY:
        return varint(len(content)) + bytes(content)
    if kind in {LIST, SET}:
        inner, values = content
        count = len(values)
        head = bytes([count << 4 | inner]) if count < 15 else bytes([0xF0 | inner]) + varint(count)
        return head + b"".join(encoded((inner, one), inside=True) for one in values)
    if kind == MAP:
        kinds, pairs = content
        if not pairs:
            return b"\0"
        body = b"".join(
            encoded((inner, one), inside=True)
            for pair in pairs
            for inner, one in zip(kinds, pair, strict=True)
        )
        return varint(len(pairs)) + bytes([kinds[0] << 4 | kinds[1]]) + body
    return struct(content)


def struct(fields: list[tuple[int, Value]]) -> bytes:
    """Fields by number, in any order."""
    found, last = bytearray(), 0
    for number, (kind, content) in fields:
        step = number - last
        found += (
            bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + zigzag(number)
        ) + encoded((kind, content))
        last = number
    return bytes(found) + b"\0"


INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200)
CONTENTS: dict[int, st.SearchStrategy[Any]] = {
    TRUE: st.none(),
    FALSE: st.none(),
    BYTE: st.integers(0, 255),
    I16: INTEGERS,
    I32: INTEGERS,
    I64: INTEGERS,
    DOUBLE: st.binary(min_size=8, max_size=8),
    BINARY: st.binary(max_size=20) | st.binary(min_size=130, max_size=140),
}


def lists(inner: st.SearchStrategy[Value], sizes: int) -> st.SearchStrategy[Any]:
    kinds = st.sampled_from(sorted(CONTENTS))
    return kinds.flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(CONTENTS[kind], max_size=sizes))
    )


def maps() -> st.SearchStrategy[Any]:
    kinds = st.tuples(st.sampled_from(sorted(CONTENTS)), st.sampled_from(sorted(CONTENTS)))
    return kinds.flatmap(
        lambda pair: st.tuples(
            st.just(pair),
            st.lists(st.tuples(CONTENTS[pair[0]], CONTENTS[pair[1]]), max_size=4),
        )
    )


def structs(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[list[tuple[int, Value]]]:
    return st.lists(st.tuples(st.integers(-50, 300), inner), max_size=5)


VALUES: st.SearchStrategy[Value] = st.recursive(
    st.sampled_from(sorted(CONTENTS)).flatmap(
        lambda kind: st.tuples(st.just(kind), CONTENTS[kind])
    ),
    lambda inner: (
        st.tuples(st.just(STRUCT), structs(inner))
        | st.tuples(st.sampled_from([LIST, SET]), lists(inner, 20))
        | st.tuples(st.just(MAP), maps())
        | st.tuples(
            st.sampled_from([LIST, SET]),
            st.tuples(st.just(STRUCT), st.lists(structs(inner), max_size=3)),
        )
    ),
    max_leaves=12,
)


@given(value=VALUES)
def test_every_value_is_passed_over_to_its_end(value: Value) -> None:
    data = encoded(value)
    reader = CompactReader(b"front" + data + b"\x80behind", 5)
    reader.skip(value[0])
    assert reader.at == 5 + len(data)


@given(value=VALUES, cut=st.integers(1, 400))
def test_a_value_that_is_cut_short_reaches_behind_the_data(value: Value, cut: int) -> None:
    data = encoded(value)
    reader = CompactReader(data[:-cut])
    try:
        reader.skip(value[0])
    except IndexError:
        return
    # Of numbers of a fixed size the caller sees the end when it reads on.
    assert reader.at > len(data) - cut or not data


@given(fields=structs(VALUES))
def test_fields_have_their_numbers_and_types(fields: list[tuple[int, Value]]) -> None:
    reader = CompactReader(struct(fields) + b"behind")
    found = []
    for number, kind in reader.fields():
        found.append((number, kind))
        reader.skip(kind)
    assert found == [(number, kind) for number, (kind, _) in fields]
    assert reader.data[reader.at :] == b"behind"


@given(fields=structs(VALUES))
def test_numbers_of_a_struct(fields: list[tuple[int, Value]]) -> None:
    expected = {n: content for n, (kind, content) in fields if kind in {I16, I32, I64}}
    reader = CompactReader(struct(fields) + b"behind")
    assert reader.struct(dict.fromkeys(range(-50, 301), I64)) == expected
    assert reader.data[reader.at :] == b"behind"


@given(number=INTEGERS, text=st.binary(max_size=200))
def test_single_values(number: int, text: bytes) -> None:
    reader = CompactReader(zigzag(number) + encoded((BINARY, text)) + varint(2**64 - 1))
    assert (reader.integer(), reader.binary(), reader.varint()) == (number, text, 2**64 - 1)
    assert reader.at == len(reader.data)


def test_structs_in_structs_and_lists_as_they_stand() -> None:
    inner: Value = (STRUCT, [(9, (BYTE, 3)), (10, (I32, 8))])
    listed: Value = (LIST, (I32, [1, 300]))
    both: Value = (LIST, (STRUCT, [inner[1], []]))
    fields = [(1, (I32, 5)), (2, inner), (3, (BINARY, b"a")), (4, listed), (5, both)]
    data = struct(fields) + b"behind"
    wanted: dict[int, Any] = {1: I64, 2: {10: I64}, 3: BINARY, 4: LIST, 5: ({10: I64},)}
    found = {1: 5, 2: {10: 8}, 3: b"a", 4: encoded(listed), 5: [{10: 8}, {}]}
    reader = CompactReader(data)
    assert reader.struct(wanted) == found
    assert reader.data[reader.at :] == b"behind"
    # What is of another type is as if it were not there.
    for number, want in ((1, BINARY), (2, I64), (3, LIST), (4, {1: I64}), (5, {1: I64})):
        reader = CompactReader(data)
        others = {key: value for key, value in found.items() if key != number}
        assert reader.struct({**wanted, number: want}) == others
        assert reader.data[reader.at :] == b"behind"
    with pytest.raises(InvalidMetadataError, match="another type"):
        CompactReader(data).struct({4: ({1: I64},)})
    assert CompactReader(encoded(listed)).numbers() == [1, 300]
    with pytest.raises(InvalidMetadataError, match="another type"):
        CompactReader(encoded(both)).numbers()


@pytest.mark.parametrize("size", [14, 15])
def test_heads_of_lists(size: int) -> None:
    data = encoded((LIST, (BYTE, [0] * size)))
    reader = CompactReader(data)
    assert reader.items() == (BYTE, size)
    assert reader.at == len(data) - size
    short = CompactReader(data[:-1])
    with pytest.raises(IndexError):
        short.items()
    with pytest.raises(IndexError):
        CompactReader(data[:-1]).skip(LIST)


def test_byte_strings_end_with_the_data_at_most() -> None:
    assert CompactReader(b"\3abc").binary() == b"abc"
    for read in (CompactReader.binary, lambda reader: reader.skip(BINARY)):
        with pytest.raises(IndexError):
            read(CompactReader(b"\3ab"))


def nested(kind: int, depth: int) -> bytes:
    """Values in one another, `depth` of them in all."""
    if kind == STRUCT:
        return b"\x1c" * (depth - 1) + b"\0" * depth
    if kind == LIST:
        return b"\x19" * (depth - 1) + b"\x03"
    return (b"\1" + bytes([BYTE << 4 | MAP]) + b"\0") * (depth - 1) + b"\0"


@pytest.mark.parametrize("kind", [STRUCT, LIST, MAP])
def test_values_are_nested_32_deep_at_most(kind: int) -> None:
    data = nested(kind, 32)
    reader = CompactReader(data)
    reader.skip(kind)
    assert reader.at == len(data)
    with pytest.raises(InvalidMetadataError, match="nested too deep"):
        CompactReader(nested(kind, 33)).skip(kind)


def test_what_no_writer_makes() -> None:
    assert CompactReader(b"\xff" * 9 + b"\1").varint() == 2**64 - 1
    for data in (b"\xff" * 9 + b"\2", b"\xff" * 10 + b"\1", b"\x80" * 10 + b"\0"):
        with pytest.raises(InvalidMetadataError, match="too long"):
            CompactReader(data).varint()
    for kind in (0, 13, 14, 15):
        with pytest.raises(InvalidMetadataError, match="unknown"):
            CompactReader(bytes(9)).skip(kind)
    # A map that claims more than there is ends with the data, whatever its elements are.
    with pytest.raises(IndexError):
        CompactReader(b"\xff\xff\xff\xff\x0f\x11" + bytes(50)).skip(MAP)
