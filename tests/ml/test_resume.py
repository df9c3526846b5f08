"""Failures to resume that users of LitData and MosaicML Streaming reported, tried here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comal import ml
from comal.errors import InvalidInputError
from comal.ml.order import Order, digest_of
from tests.ml.made import Numbers, flat

COUNT, BATCH = 23, 4
SHUFFLED: Any = {"shuffle": True}
Run = Any
"""What `Dataset.loader` or `Dataset.sampler` gives."""


def _loader(data: Numbers | None = None, workers: int = 0, **options: Any) -> Run:
    return (data or Numbers(COUNT)).loader(BATCH, workers=workers, **{**SHUFFLED, **options})


def _sampler(data: Numbers | None = None, workers: int = 0, **options: Any) -> Run:
    return (data or Numbers(COUNT)).sampler(BATCH, **{**SHUFFLED, **options})


def _numbers(batch: Any) -> list[int]:
    found: list[int] = batch["n"][:, 0].tolist() if isinstance(batch, dict) else batch
    return found


def _take(run: Run, batches: int) -> list[int]:
    """The samples of the first batches of an iteration, which is then left."""
    iteration = iter(run)
    return [one for _ in range(batches) for one in _numbers(next(iteration))]


def _whole(run: Run) -> list[int]:
    return [one for batch in run for one in _numbers(batch)]


def _right(epoch: int, done: int = 0, count: int = COUNT) -> list[int]:
    rows: list[int] = Order(count, shuffle=True).at(np.arange(done, count), epoch).tolist()
    return rows


both = pytest.mark.parametrize("make", [_loader, _sampler])


@both
@pytest.mark.parametrize(
    ("epochs", "batches", "before", "after"),
    [
        # LitData 24: a state of a loader without workers could not be loaded.
        *((0, 2, 0, 0), (0, 2, 0, 2), (0, 2, 2, 0)),
        # LitData 316: after a whole epoch an error, after a part of one only parts for ever.
        *((0, 0, 0, 0), (0, 1, 0, 0), (0, 5, 0, 0), (0, 6, 0, 0), (1, None, 0, 0)),
        # LitData 363: after several epochs the number of samples was above that of all.
        (5, 2, 0, 0),
    ],
)
def test_a_state_is_after_the_last_batch_of_a_run(
    make: Any, epochs: int, batches: int | None, before: int, after: int
) -> None:
    """MosaicML 437, too: a second loader of the same data began anew."""
    run = make(data := Numbers(COUNT), before)
    for epoch in range(epochs):
        assert _whole(run) == _right(epoch)
    iteration = iter(run if batches is not None else [])
    for _ in range(batches or 0):
        next(iteration)
    state = json.loads(json.dumps(run.state_dict()))
    next(iteration, None)  # which the state does not know of
    again = make(data, after)
    again.load_state_dict(state)
    if batches is not None:
        at_end = batches == len(run)
        assert state["done"] == min(batches * BATCH, COUNT)
        assert (state["epoch"], again.epoch) == (epochs, epochs + at_end)
        if not at_end:
            assert _whole(again) == _right(epochs, batches * BATCH)
        epochs += 1
    for epoch in (epochs, epochs + 1):
        assert again.epoch == epoch
        assert _whole(again) == _right(epoch)


@both
@pytest.mark.parametrize("ranks", [4, 6])
def test_the_state_of_one_rank_is_that_of_all(make: Any, ranks: int) -> None:
    """LitData 248: ranks of several nodes failed on the state that the first one had saved."""
    data, options = Numbers(100), {"rest": "uneven"}
    runs = [make(data, rank=rank, ranks=4, **options) for rank in range(4)]
    seen = [one for run in runs for one in _take(run, 3)]
    states = [run.state_dict() for run in runs]
    assert all(state == states[0] for state in states)
    for rank in range(ranks):
        again = make(data, rank=rank, ranks=ranks, **options)
        again.load_state_dict(states[0])
        seen += _whole(again)
    assert sorted(seen) == list(range(100))


@both
def test_other_data(make: Any) -> None:
    """LitData 263: training that went on with other data failed far inside of a worker."""
    run = make()
    _take(run, 3)
    other = make(Numbers(7))
    with pytest.raises(InvalidInputError, match=r"another loader: samples(?s:.*)set_epoch"):
        other.load_state_dict(run.state_dict())
    other.set_epoch(run.epoch + 1)
    assert _whole(other) == _right(1, count=7)


@both
def test_a_state_of_other_weights_or_blocks(make: Any) -> None:
    """Each continues its own epoch, and none that of another one."""
    some = np.arange(COUNT) % 3
    ways: list[Any] = [{}, {"strata": some}, {"strata": some[::-1]}, {"weights": some}]
    ways += [{"shuffle": "blocks", "block": block} for block in (2, 3)]
    ways += [{"weights": some + 1}, {"weights": some, "draws": COUNT + 1}]
    for place, one in enumerate(ways):
        whole = _whole(make(**one))
        run = make(**one)
        begun = _take(run, 2)
        for other, way in enumerate(ways):
            again = make(**way)
            if other == place:
                again.load_state_dict(json.loads(json.dumps(run.state_dict())))
                assert begun + _whole(again) == whole
            else:
                with pytest.raises(InvalidInputError, match="state of another loader"):
                    again.load_state_dict(run.state_dict())


@pytest.mark.parametrize("kind", ["loader", "sampler"])
def test_other_samples_of_the_same_number(kind: str, tmp_path: Path) -> None:
    """A selection is told by its ids and their order, wherever the archive is."""
    path = flat(tmp_path, 12)
    copy = path.rename(tmp_path / "elsewhere.tacozip")
    data = ml.dataset(copy, columns=["split", "label"])

    def run(samples: Any) -> Run:
        return getattr(samples, kind)(2, shuffle=True)

    state = json.loads(json.dumps(run(data.splits("split")["train"]).state_dict()))
    train = range(0, 12, 2)
    for same in (ml.dataset(copy, where="split = 'train'"), data.take(train)):
        run(same).load_state_dict(state)
    for other in (data.splits("split")["test"], data.take(train[::-1]), data.take([0] * 6)):
        with pytest.raises(InvalidInputError, match=r"another loader: ids(?s:.*)where, split"):
            run(other).load_state_dict(state)


@given(st.lists(st.text(max_size=3), max_size=5), st.lists(st.text(max_size=3), max_size=5))
def test_ids_have_one_digest_in_any_form(some: list[str], others: list[str]) -> None:
    forms = [
        pa.array(some, pa.string()),
        pa.array(some, pa.large_string()),
        pa.array(["x", *some, "y"]).slice(1, len(some)),
        pa.chunked_array([some[:1], some[1:]], pa.string()),
    ]
    assert len({digest_of(one) for one in forms}) == 1
    assert (digest_of(forms[0]) == digest_of(pa.array(others, pa.string()))) == (some == others)


@given(st.integers(0, 12), st.integers(0, 12), st.sampled_from([_loader, _sampler]))
def test_a_counted_place_is_the_place_of_a_state(epoch: int, batches: int, make: Any) -> None:
    counted, whole = make(), _right(epoch)
    counted.set_epoch(epoch, batches)
    rest = whole[batches * BATCH :] or _right(epoch + 1)
    state = counted.state_dict()
    counted.set_epoch(counted.epoch)  # as loops do
    assert counted.state_dict() == state
    assert _whole(counted) == rest


@both
def test_asking_for_an_iteration_begins_it_once(make: Any) -> None:
    """torch asks for several before it uses one."""
    run = make()
    _take(run, 2)
    iter(run)
    iter(run)
    assert (run.state_dict()["epoch"], run.state_dict()["done"]) == (1, 0)
    assert _whole(run) == _right(1)
    run.set_epoch(0)
    assert _whole(run) == _right(0)
    with pytest.raises(InvalidInputError, match="negative"):
        run.set_epoch(-1)


@both
def test_an_epoch_may_be_set_after_the_iteration_began(make: Any) -> None:
    """As Lightning does, which looks for the sampler of a loader."""
    run = make()
    iteration = iter(run)
    run.sampler.set_epoch(3)
    assert _numbers(next(iteration)) == _right(3)[:BATCH]
    assert run.state_dict()["epoch"] == 3


@both
def test_an_epoch_that_is_set_too_late(make: Any) -> None:
    """Lightning sets it after workers of torch took their first batches, if a run continues."""
    run = make()
    iteration = iter(run)
    seen = _numbers(next(iteration)) + _numbers(next(iteration))
    run.set_epoch(1)
    with pytest.warns(UserWarning, match="epoch 0 goes on.*epoch 1 was set.*before"):
        seen += _numbers(next(iteration))
    again = make()
    again.load_state_dict(run.state_dict())
    rest = [one for batch in iteration for one in _numbers(batch)]
    assert seen + rest == _right(0)
    assert _whole(again) == rest
    assert _whole(run) == _whole(again) == _right(1)


@both
@pytest.mark.parametrize(("batches", "at_end"), [(2, False), (6, False), (6, True)])
def test_calls_as_lightning_makes_them(make: Any, batches: int, at_end: bool) -> None:
    """A checkpoint after a batch, or at the end of an epoch, whose state Lightning leaves out.

    Its order of calls was observed with release 2.6.6.
    """
    run = make()
    _take(run, batches)
    again = make()
    if not at_end:
        again.load_state_dict(run.state_dict())
    iteration = iter(again)
    again.sampler.set_epoch(0)
    if batches == len(run):
        again.sampler.set_epoch(1)
    rest = [one for batch in iteration for one in _numbers(batch)]
    assert rest == (_right(1) if batches == len(run) else _right(0, batches * BATCH))
    again.sampler.set_epoch(again.epoch)
    assert _whole(again) == _right(2 if batches == len(run) else 1)


def test_samplers_draw_with_weights() -> None:
    sampler = Numbers(10).sampler(5, weights=[0] * 9 + [1], draws=15, drop_last=True)
    assert list(sampler) == [[9] * 5] * 3
