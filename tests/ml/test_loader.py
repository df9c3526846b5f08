"""Batches: in order, ahead, bounded, and resumed exactly."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comal import ml
from comal.errors import InvalidInputError
from comal.ml.batches import Fetched, Places
from comal.ml.buffers import Buffers
from comal.ml.loader import Loader
from comal.ml.order import Order
from tests.ml.made import Numbers, flat, pixels


def numbers(loader: Any) -> list[int]:
    return [int(one) for batch in loader for one in batch["n"][:, 0]]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_the_order_of_the_epoch(workers: int) -> None:
    data = Numbers(103)
    loader = data.loader(10, shuffle=True, seed=4, workers=workers)
    assert len(loader) == 11
    epochs = [numbers(loader) for _ in range(3)]
    for epoch, found in enumerate(epochs):
        assert found == Order(103, shuffle=True, seed=4).at(np.arange(103), epoch).tolist()
    assert loader.epoch == 3


@given(st.data())
def test_a_run_continues_where_it_was(data: st.DataObject) -> None:
    """After any batch of any epoch, with other batches, ranks and workers, nothing is lost."""
    count = data.draw(st.integers(1, 30))
    left = data.draw(st.integers(0, 35))
    batch, ranks = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
    order = Order(count, shuffle=True, seed=7)
    seen: list[list[int]] = []
    states = []
    for rank in range(ranks):
        loader = _loader(count, batch, rank, ranks, data)
        found: list[int] = []
        taken = iter(())  # type: Any
        for _ in range(left):
            part = next(taken, None)
            if part is None:
                taken = iter(loader)
                part = next(taken, None)
            found += [] if part is None else part["n"][:, 0].tolist()
        seen.append(found)
        states.append(loader.state_dict())
    # Ranks with fewer batches run ahead; those of the same epoch agree.
    state = states[0]
    batch, ranks = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 4))
    again = [_loader(count, batch, rank, ranks, data) for rank in range(ranks)]
    rest: list[int] = []
    for loader in again:
        loader.load_state_dict(state)
        rest += numbers(loader)
    done = state["done"] if state["done"] < count else 0
    epoch = state["epoch"] + (state["done"] >= count)
    assert sorted(rest) == sorted(order.at(np.arange(done, count), epoch).tolist())


def _loader(count: int, batch: int, rank: int, ranks: int, data: Any) -> Loader:
    how: Any = {"shuffle": True, "seed": 7, "rest": "uneven", "rank": rank, "ranks": ranks}
    workers: int = data.draw(st.sampled_from([0, 2]))
    loader: Loader = Numbers(count).loader(batch, workers=workers, **how)
    return loader


def test_a_state_of_another_order_is_refused() -> None:
    state = Numbers(50).loader(5, shuffle=True, seed=1).state_dict()
    for other in (Numbers(51).loader(shuffle=True, seed=1), Numbers(50).loader(seed=1)):
        with pytest.raises(InvalidInputError, match="state of another loader"):
            other.load_state_dict(state)
    with pytest.raises(InvalidInputError, match="without epoch"):
        Numbers(50).loader(5, shuffle=True, seed=1).load_state_dict({**state, "done": "x"})


def test_reading_ahead_keeps_its_budget() -> None:
    data = Numbers(1000, size=100)
    before = set(threading.enumerate())  # those of iterations that nobody has collected yet
    batches: Any = iter(data.loader(10, ahead_bytes=3500, workers=2))
    next(batches)
    time.sleep(0.2)
    # Three batches of 1 000 bytes fit, besides the one in use.
    assert len(data.reading) <= 40
    next(batches)
    batches.close()
    left = set(threading.enumerate()) - before
    assert not [one for one in left if one.name.startswith("comal-decode")]


class Waiting(Numbers):
    """Each batch of 5 is answered only when all up to 3 later ones have been asked for."""

    def __init__(self, count: int) -> None:
        super().__init__(count, size=1 << 20)  # so large that each batch is read by itself
        self.asked = 0
        self.changed = threading.Condition()

    def read(self, rows: Any) -> Any:
        with self.changed:
            self.asked += 1
            self.changed.notify_all()
        self.wait_for_those_after(int(rows[0]) // 5, 3)
        return super().read(rows)

    def wait_for_those_after(self, batch: int, ahead: int) -> None:
        with self.changed:
            all_asked = min(batch + 1 + ahead, self.count // 5)
            assert self.changed.wait_for(lambda: self.asked >= all_asked, 30), (batch, self.asked)


def test_the_next_batches_are_asked_for_before_one_is_given() -> None:
    """So a step that takes longer than the bytes of its batch never waits for a slow store."""
    data = Waiting(200)
    for number, batch in enumerate(data.loader(5, workers=2)):
        # They need nothing of the caller, who is in a step.
        data.wait_for_those_after(number, min(6 + 2 * number, 16))
        assert batch["n"][:, 0].tolist() == list(range(5 * number, 5 * number + 5))
    assert sorted(data.reading) == list(range(200))


def test_an_error_of_a_worker_arrives() -> None:
    class Broken(Numbers):
        def decode(self, place: int, raw: Any, out: Any) -> Any:
            if raw[place] == 57:
                raise ZeroDivisionError("57")
            return super().decode(place, raw, out)

    with pytest.raises(ZeroDivisionError, match="57"):
        numbers(Broken(100).loader(10))


def test_arrays_of_batches_are_used_again_once_nobody_holds_them(tmp_path: Path) -> None:
    data = ml.dataset(flat(tmp_path, 40))
    kept, places = [], set()
    for number, batch in enumerate(data.loader(4, ahead_bytes=1)):
        places.add(batch["data"].__array_interface__["data"][0])
        if number % 3 == 0:
            kept.append((number, batch))
    assert len(places) < 8
    for number, batch in kept:
        right = np.stack([pixels(4 * number + place) for place in range(4)])
        assert np.array_equal(batch["data"], right)


def test_samples_of_different_shapes() -> None:
    samples = [{"x": np.ones((1, 2, 3)), "id": "a"}, {"x": np.ones((1, 3, 2)), "id": "b"}]
    with pytest.raises(InvalidInputError, match=r"differ in 'x': sample 'b'"):
        ml.collate(samples, to="numpy")
    padded = ml.collate(samples, "pad", "numpy")
    assert padded["x"].shape == (2, 1, 3, 3)
    assert padded["x"].sum() == 12
    assert len(ml.collate(samples, "list", "numpy")["x"]) == 2
    assert ml.collate([{"n": 1, "s": "x"}, {"n": 2, "s": "y"}], to="numpy")["s"] == ["x", "y"]


def test_values_of_every_kind_in_a_batch() -> None:
    """Numbers become arrays, also those of NumPy; what has more to it than its numbers stays."""
    masked = np.ma.masked_array([1, 2], [True, False])
    samples = [
        {"a": np.array(n), "b": np.float32(n), "c": n, "d": 2**70, "e": masked} for n in (1, 2)
    ]
    data = Numbers(2)
    data.decode = lambda place, raw, out: dict(samples[raw[place]])  # type: ignore[method-assign]
    for batch in (ml.collate(samples, to="numpy"), *data.loader(2), *data.loader(2, workers=0)):
        for name in "abc":
            assert batch[name].tolist() == [1, 2]
        assert batch["b"].dtype == np.float32
        assert batch["d"] == [2**70] * 2
        assert [one.mask.tolist() for one in batch["e"]] == [[True, False]] * 2


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([2**63 + 1, 5], np.uint64),
        ([5, 7], np.int64),
        ([2**63 + 1, -5], None),
        ([2.5, 1.0], np.float64),
    ],
)
def test_integers_of_a_batch_lose_no_digit(values: list[Any], dtype: Any) -> None:
    found = ml.collate([{"a": value} for value in values], to="numpy")["a"]
    assert list(found) == values
    assert getattr(found, "dtype", None) == dtype


def test_samples_that_were_changed_in_place_stay_changed() -> None:
    """Their arrays are views of the same memory, with other strides or another type."""
    changes: tuple[Callable[[Any], Any], ...] = (
        lambda x: x.T,
        lambda x: x[::-1],
        lambda x: x.view("int32"),
        lambda x: x,
    )
    for change in changes:
        places = Places(Buffers(), 2)
        made = [places.keep({"x": np.arange(9, dtype=np.float32).reshape(3, 3)}) for _ in range(2)]
        samples = Fetched(({"x": change(one["x"])} for one in made), places)
        expected = np.stack([one["x"] for one in samples])
        found = ml.collate(samples, to="numpy")["x"]
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


def test_small_batches_are_read_together_after_the_first() -> None:
    class Reads(Numbers):
        def read(self, rows: Any) -> Any:
            self.reads = [*getattr(self, "reads", []), len(rows)]
            return super().read(rows)

    for workers in (0, 1):
        data = Reads(1000, size=2048)  # 512 samples are a MiB
        assert numbers(data.loader(10, workers=workers)) == list(range(1000))
        assert data.reads == [10, 510, 480]
