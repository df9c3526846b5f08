"""Orders are one to one, reproducible, and shared without loss."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comal.errors import InvalidInputError
from comal.ml.order import Order, key_of, permuted
from tests.ml.made import Numbers

WRONG: Any = "rows"
SHUFFLES: list[Any] = [False, True, "blocks"]


@given(st.integers(0, 3000), st.integers(), st.integers(0, 9), st.sampled_from(SHUFFLES))
def test_an_epoch_has_every_row_once(rows: int, seed: int, epoch: int, shuffle: Any) -> None:
    order = Order(rows, shuffle=shuffle, seed=seed % 2**63, block=7, window=5)
    found = order.at(np.arange(rows), epoch)
    assert np.array_equal(np.sort(found), np.arange(rows))
    some = np.arange(0, rows, 3)
    assert np.array_equal(order.at(some, epoch), found[some])


def test_orders_differ_by_seed_and_epoch_and_stay_what_they_are() -> None:
    positions = np.arange(1000)
    orders = {
        (seed, epoch): tuple(Order(1000, shuffle=True, seed=seed).at(positions, epoch).tolist())
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(set(orders.values())) == 9
    assert orders[0, 0][:6] == FIRST
    assert tuple(Order(1000, shuffle="blocks").at(positions, 0)[:6].tolist()) == FIRST_OF_BLOCKS


FIRST = (981, 439, 496, 337, 774, 46)
FIRST_OF_BLOCKS = (855, 787, 911, 805, 130, 571)


def test_small_permutations_are_equally_likely() -> None:
    counts = Counter(
        tuple(permuted(np.arange(4), 4, key_of(seed, 1)).tolist()) for seed in range(2_400)
    )
    assert len(counts) == 24
    # 100 each; the standard deviation is 10.
    assert all(abs(count - 100) < 50 for count in counts.values())


def test_places_of_a_large_permutation_do_not_follow_those_before() -> None:
    found = permuted(np.arange(100_000), 100_000, key_of(5, 0)).astype(float)
    assert abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(np.arange(100_000), found)[0, 1]) < 0.02


def test_blocks_keep_neighbours_near_each_other() -> None:
    """In 512 samples in a row there are rows of 8 or 9 blocks of 64, not of 1 563."""
    order = Order(100_000, shuffle="blocks", seed=3, window=8)
    rows = order.at(np.arange(512 * 20, 512 * 21))
    begins = np.count_nonzero(np.diff(np.sort(rows)) > 1) + 1
    assert begins <= 9
    assert np.count_nonzero(np.abs(np.diff(rows)) == 1) < 20


@pytest.mark.parametrize(
    ("size", "block", "window"),
    [(1 << 10, 64, 32), (4 << 10, 16, 32), (21_000, 3, 32), (30 << 10, 2, 16), (1 << 30, 2, 16)],
)
def test_blocks_are_as_large_as_samples_allow(size: int, block: int, window: int) -> None:
    """A pair of large samples is in one batch of 32, so that they need half of the requests."""
    sampler = Numbers(6400, size).sampler(32, shuffle="blocks", seed=3)
    how: Any = {"shuffle": "blocks", "seed": 3}
    right = Order(6400, block=block, window=window, **how).at(np.arange(6400))
    batches = list(sampler)
    assert np.concatenate(batches).tolist() == right.tolist()
    if block == 2:
        runs = [np.count_nonzero(np.diff(np.sort(batch)) != 1) + 1 for batch in batches]
        assert np.mean(runs) < 16.5
    given = Numbers(6400, size).sampler(32, block=5, window=4, **how)
    assert next(iter(given)) == Order(6400, block=5, window=4, **how).at(np.arange(32)).tolist()


def test_weights_draw_in_proportion() -> None:
    weights = np.array([0, 1, 2, 7.0])
    drawn = Order(4, weights=weights, draws=20_000).at(np.arange(20_000), 1)
    shares = np.bincount(drawn, minlength=4) / 20_000
    assert np.allclose(shares, weights / 10, atol=0.015)


def test_strata_spread_every_class_over_the_epoch() -> None:
    classes = np.array([0] * 900 + [1] * 100)
    order = Order(1000, shuffle=True, strata=classes)
    found = order.at(np.arange(1000))
    assert np.array_equal(np.sort(found), np.arange(1000))
    batches = classes[found].reshape(20, 50).sum(axis=1)
    assert batches.min() >= 4
    assert batches.max() <= 6


def test_an_epoch_spreads_strata_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the first batch, and for all others: each time over all rows."""
    keys: list[int] = []
    spread = Order._spread

    def counted(order: Order, key: int) -> Any:
        keys.append(key)
        return spread(order, key)

    monkeypatch.setattr(Order, "_spread", counted)
    sampler = Numbers(50_000).sampler(64, shuffle=True, strata=np.arange(50_000) % 3)
    rows = [row for batch in sampler for row in batch]
    assert sorted(rows) == list(range(50_000))
    assert len(keys) <= 2


@given(
    st.integers(0, 200),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from(["pad", "drop", "uneven"]),
    st.booleans(),
)
def test_ranks_share_an_epoch(total: int, batch: int, ranks: int, rest: Any, drop: bool) -> None:
    how: dict[str, Any] = {"ranks": ranks, "rest": rest, "drop_last": drop}
    orders = [Order(total, batch, rank=rank, **how) for rank in range(ranks)]
    taken = [list(order.batches()) for order in orders]
    assert [order.steps() for order in orders] == [len(one) for one in taken]
    every = np.concatenate([np.zeros(0, int), *[part for one in taken for part in one]])
    counts = np.bincount(every, minlength=total)
    if rest != "uneven" or drop:
        assert len({sum(map(len, one)) for one in taken}) == 1
    if rest == "uneven" and not drop:
        assert (counts == 1).all()
    elif rest == "pad" and not drop:
        assert (counts >= 1).all()
        assert len(every) - total < ranks
    else:
        assert counts.max(initial=0) <= 1
        assert total - len(every) < (batch * ranks if drop else ranks)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (
            lambda: Order(3, shuffle=WRONG),
            r"shuffle cannot be used(?s:.*)expected bool \| Literal\['blocks'\]$",
        ),
        (lambda: Order(3, weights=[1, 2]), "weights do not fit"),
        (lambda: Order(1, weights=[[[]]]), "weights do not fit"),
        (lambda: Order(3, weights=[1, -2, 1]), "weights do not fit"),
        *((lambda bad=bad: Order(2, weights=bad), "sum is 0") for bad in ([0, 0], [1e308, 1e308])),
        (lambda: Order(-1), "no such order"),
        (lambda: Order(3, weights=[1, 1, 1], draws=-1), "draws of an order"),
        (lambda: Order(3, strata=[0, 1]), "strata do not fit"),
        (lambda: Order(3, weights=[1, 1, 1], strata=[0, 1, 1]), "exclude one another"),
        (lambda: Order(3, draws=7), "draws go with weights"),
        (lambda: Order(3, block=0), "block of an order"),
        (lambda: Order(3, 0), "no such order"),
        (lambda: Order(1, rank=2, ranks=2), "no such rank"),
        (lambda: Order(1, rest=WRONG), "'pad', 'drop', 'uneven'"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, match: str) -> None:
    with pytest.raises(InvalidInputError, match=match):
        make()


@pytest.mark.parametrize("count", [0, 10])
@pytest.mark.parametrize(
    "how", [{}, {"shuffle": True}, {"shuffle": "blocks"}, {"weights": 1}, {"strata": 1}]
)
def test_places_outside_of_an_epoch_are_refused(count: int, how: dict[str, Any]) -> None:
    """For a place before the first, a shuffled order once looked for a row for ever."""
    each: Any = {
        name: np.ones(count) if value == 1 and name != "shuffle" else value
        for name, value in how.items()
    }
    order = Order(count, **each)
    assert len(order.at(np.arange(count))) == count
    for place in (-1, count, 10 * count + 1):
        with pytest.raises(InvalidInputError, match="no such positions"):
            order.at(np.array([place]))
