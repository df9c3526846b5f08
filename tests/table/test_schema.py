"""Plain types, whoever wrote the table."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.table.tables import opened

from comal.errors import InvalidMetadataError, LimitExceededError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.table import plain_schema, plain_table
from comal.table.columns import check_schema, plain_type
from comal.table.scan import Scan

INT_LIST = pa.list_(pa.field("element", pa.int64()))

TYPES: list[tuple[Any, Any]] = [
    (pa.int32(), pa.int32()),
    (pa.string(), pa.string()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.binary(16), pa.binary(16)),
    (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
    (pa.run_end_encoded(pa.int32(), pa.int64()), pa.int64()),
    (pa.list_(pa.int64()), INT_LIST),
    (pa.large_list(pa.field("x", pa.int64())), INT_LIST),
    (pa.list_view(pa.int64()), INT_LIST),
    (pa.large_list_view(pa.int64()), INT_LIST),
    (pa.list_(pa.int64(), 6), pa.list_(pa.field("element", pa.int64()), 6)),
    (
        pa.list_(pa.large_list(pa.large_string())),
        pa.list_(pa.field("element", pa.list_(pa.field("element", pa.string())))),
    ),
    (
        pa.struct([("a", pa.large_string()), pa.field("b", pa.int8(), nullable=False)]),
        pa.struct([("a", pa.string()), pa.field("b", pa.int8(), nullable=False)]),
    ),
    (pa.map_(pa.large_string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
    (pa.uuid(), pa.binary(16)),
    (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
]


@pytest.mark.parametrize(("kind", "plain"), TYPES, ids=lambda kind: str(kind)[:30])
def test_plain_type(kind: Any, plain: Any) -> None:
    found = plain_type(kind)
    assert found == plain
    assert str(found) == str(plain)  # equality of lists does not look at the child's name


def test_plain_tables_are_not_copied() -> None:
    table = pa.table({"a": pa.array(["x" * 100] * 100, pa.large_string())})
    plain = plain_table(table)
    assert plain.schema == pa.schema([("a", pa.string())])
    address = table.column(0).chunk(0).buffers()[2].address
    assert plain.column(0).chunk(0).buffers()[2].address == address
    assert plain_table(plain) is plain


def test_metadata_is_dropped() -> None:
    field = pa.field("a", pa.int64(), metadata={"k": "v"})
    schema = plain_schema(pa.schema([field], metadata={"k": "v"}))
    assert schema.metadata is None
    assert schema.field(0).metadata is None


@pytest.mark.parametrize("compliant", [True, False])
def test_tables_of_others(compliant: bool) -> None:
    table = pa.table(
        {
            "s": pa.array(["a", None], pa.large_string()),
            "v": pa.array(["a", "b"], pa.string_view()),
            "b": pa.array([b"a", None], pa.large_binary()),
            "l": pa.array([[1, 2], None], pa.large_list(pa.int64())),
            "d": pa.array(["x", "y"]).dictionary_encode(),
            "n": pa.array([[["q"]], []], pa.list_(pa.large_list(pa.large_string()))),
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, use_compliant_nested_type=compliant)
    read, _ = opened(file.getvalue())
    expected = [str(plain_type(kind)) for kind in table.schema.types]
    for found in (read.read(), Scan(read).to_table(), pa.table(read.schema.empty_table())):
        assert [str(kind) for kind in found.schema.types] == expected
    assert read.read().to_pydict() == table.to_pydict()
    assert Scan(read).to_table().to_pydict() == table.to_pydict()


def nested(depth: int) -> Any:
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        (pa.schema([("a\nb", pa.int64())]), InvalidMetadataError),
        (pa.schema([("a\0", pa.int64())]), InvalidMetadataError),
        (pa.schema([("\x85", pa.int64())]), InvalidMetadataError),
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), InvalidMetadataError),
        (
            pa.schema([("s", pa.struct([("a", pa.int8()), ("a", pa.int8())]))]),
            InvalidMetadataError,
        ),
        (pa.schema([("s", pa.list_(pa.struct([("\x1b", pa.int8())])))]), InvalidMetadataError),
        (pa.schema([("n" * 129, pa.int64())]), LimitExceededError),
        (pa.schema([("é" * 65, pa.int64())]), LimitExceededError),
        (pa.schema([(str(row), pa.int64()) for row in range(2001)]), LimitExceededError),
        (pa.schema([("a", nested(8))]), LimitExceededError),
    ],
)
def test_schemas_that_are_refused(schema: Any, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        check_schema(schema, DEFAULT_LIMITS, "t")
    assert type(caught.value) is error


def test_schemas_that_are_fine() -> None:
    names = ["", " ", '"', "a.b", "A", "a", "stac:crs", "é" * 64, "__x"]
    check_schema(pa.schema([(name, nested(7)) for name in names]), DEFAULT_LIMITS, "t")
    check_schema(pa.schema([("n" * 200, nested(20))]), LARGE, "t")


LARGE = Limits(column_name_bytes=200, table_nesting=21)
