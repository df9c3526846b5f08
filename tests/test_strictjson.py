from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comal import strictjson
from comal.errors import ComalError, InvalidMetadataError, LimitExceededError
from comal.limits import Limits

BROKEN = [
    (b"\xff{}", "UTF-8"),
    (b"[1]", "not an object"),
    (b"{", "not valid"),
    (b'{"a": 1, "a": 2}', "twice"),
    (b'{"a": {"b": 1, "b": 2}}', "twice"),
    (b'{"a": NaN}', "not a JSON number"),
    (b'{"a": -Infinity}', "not a JSON number"),
    (b"", "not valid"),
    (b'{"a": 1e999}', "not a JSON number"),
    (b'{"a": [-1' + b"0" * 400 + b".5]}", "not a JSON number"),
    (b'{"a": ' + b"1" * 250 + b".0E+99}", "not a JSON number"),
]


@pytest.mark.parametrize(("data", "text"), BROKEN)
def test_broken(data: bytes, text: str) -> None:
    with pytest.raises(InvalidMetadataError, match=text) as caught:
        strictjson.loads(data, "x.json")
    assert "x.json" in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}",
        b"[" * 1_000_000,
        b'{"a": ' + b"9" * 50 + b"}",
        b'{"a": "' + b"x" * 2000 + b'"}',
    ],
)
def test_limits(data: bytes) -> None:
    limits = Limits(json_bytes=1000 if b"xxx" in data else 10_000_000)
    with pytest.raises(LimitExceededError):
        strictjson.loads(data, "x.json", limits)


def test_byte_order_mark_is_read() -> None:
    assert strictjson.loads(b'\xef\xbb\xbf{"a": 1}', "x") == {"a": 1}


_WORDS = st.text(max_size=8)
_DOCUMENTS = st.dictionaries(
    _WORDS,
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**30), 10**30) | _WORDS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
        max_leaves=10,
    ),
    max_size=3,
)


@given(_DOCUMENTS)
def test_round_trip(document: dict[str, Any]) -> None:
    try:
        data = strictjson.dumps(document)
    except UnicodeEncodeError:  # lone surrogates have no UTF-8 form
        return
    assert strictjson.loads(data, "x") == document


@given(st.binary(max_size=40))
def test_any_bytes_give_a_document_or_our_error(data: bytes) -> None:
    try:
        document = strictjson.loads(data, "x")
    except ComalError:
        return
    assert isinstance(document, dict)


def test_a_number_beyond_floats_is_infinity_where_that_is_known() -> None:
    found = strictjson.loads(b'{"a": [1e999, -1e999, 1e99, 1E+5]}', "x", constant=float)
    assert found == {"a": [float("inf"), float("-inf"), 1e99, 1e5]}


def test_half_a_character_is_no_text() -> None:
    assert strictjson.loads(b'{"a": "\\ud83d\\ude00"}', "x") == {"a": "\U0001f600"}
    for text in (b'{"a": ["\\ud83d"]}', b'{"\\uDE00": 1}', b'{"a": "\\ude00\\ud83d"}'):
        with pytest.raises(InvalidMetadataError, match="half of a surrogate pair"):
            strictjson.loads(text, "x")


def test_depth_is_counted_no_further_than_the_limit() -> None:
    with pytest.raises(LimitExceededError) as caught:
        strictjson.loads(b'{"a":' + b"[" * 16_000_000, "x")
    assert caught.value.found == 65


def _nesting(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_nesting, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_nesting, value), default=0)
    return 0


_TEXTS = st.text(st.sampled_from(list('[]{}"\\a')), max_size=6)
_VALUES = st.recursive(
    st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=12,
)


@given(document=st.dictionaries(_TEXTS, _VALUES, max_size=3))
def test_depth_counts_no_bracket_inside_of_a_string(document: dict[str, object]) -> None:
    data = json.dumps(document).encode()
    deep = _nesting(document)
    assert strictjson.loads(data, "test", Limits(json_depth=deep)) == document
    with pytest.raises(LimitExceededError, match="json depth"):
        strictjson.loads(data, "test", Limits(json_depth=deep - 1))


@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_have_as_many_digits_as_the_limit_says(sign: str) -> None:
    limits = Limits(json_digits=20)
    longest = sign + "7" * 20
    assert strictjson.loads(f'{{"a": {longest}}}'.encode(), "x", limits) == {"a": int(longest)}
    # An integer beyond the limit makes the others be counted too.
    text = f'{{"a": {longest}, "b": {longest}7}}'
    with pytest.raises(LimitExceededError, match="21 digits"):
        strictjson.loads(text.encode(), "x", limits)
    for short in (f'{{"a": 1, "b": "{"7" * 40}"}}', f'{{"a": {longest}, "b": "{"7" * 40}"}}'):
        assert "b" in strictjson.loads(short.encode(), "x", limits)
