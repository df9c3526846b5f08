"""The group ``comal ml``."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import ml
from comal.errors import InvalidInputError
from comal.ml import benching
from comal.ml.archives import Dataset
from tests.cli.conftest import Run
from tests.ml.made import flat as images
from tests.ml.made import nested, pixels


def rows(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines()]


def test_statistics_of_bands_and_classes(run: Run, tmp_path: Path) -> None:
    archive = nested(tmp_path)
    named = ["--field", "x=image.tif", "--field", "m=mask.tif", "--field", "d=about.json"]
    found = rows(run("ml", "stats", archive, *named, "--classes", "m").stdout)
    for number in range(3):
        band = np.stack([pixels(one)[number] for one in range(12)]).astype(float)
        right = [band.mean(), band.std(), band.min(), *np.percentile(band, [2, 50, 98]), band.max()]
        assert found[number][:3] == ["x", str(number + 1), str(band.size)]
        assert np.allclose(list(map(float, found[number][3:])), right, rtol=1e-4)
    assert found[3][:3] == ["m", "1", "3072"]
    counts = Counter(np.stack([pixels(one, bands=1) for one in range(12)]).ravel().tolist())
    right = [["m", "1", str(value), str(count)] for value, count in sorted(counts.items())]
    assert [row[:4] for row in found[4:]] == right
    assert sum(float(row[4]) for row in found[4:]) == pytest.approx(1, abs=1e-4)


def test_statistics_by_a_column_as_json_and_saved(run: Run, tmp_path: Path) -> None:
    archive = images(tmp_path)
    target = tmp_path / "stats.json"
    line = ["ml", "stats", archive, "--by", "split", "--where", "label <> 1", "--save", target]
    text = run(*line, "--json").stdout
    document = json.loads(text)
    assert document["samples"] == 13
    assert [value for value, _ in document["by"]] == ["train", "test"]
    assert ml.Statistics.load(target).to_dict() == document
    assert [row[:3] for row in rows(run(*line).stdout)] == [
        [split, "data", str(band)] for split in ("train", "test") for band in (1, 2, 3)
    ]
    told = run("ml", "stats", archive, "--save", target, code=10).stderr
    assert "another data set" in told
    few = run("ml", "stats", archive, "--sample", "3", "--seed", "5", "--json").stdout
    assert json.loads(few)["samples"] == 3
    assert "no column" in run("ml", "stats", archive, "--by", "x", code=2).stderr


def test_bench_tells_what_limits(run: Run, tmp_path: Path) -> None:
    archive = images(tmp_path)
    line = ["ml", "bench", archive, "--seconds", "0.05", "--batch-size", "4"]
    document = json.loads(run(*line, "--order", "blocks", "--json").stdout)
    rates = document["samples_per_second"]
    assert list(rates) == ["everything", "storage", "decoding", "python"]
    assert min(rates.values()) > 0
    assert document["limit"] in ("storage", "decoding", "python")
    assert document["samples"] == 20
    assert document["advice"]
    text = run(*line).stdout
    found = rows(text)[:4]
    assert [row[0] for row in found] == list(rates)
    assert [row[2].endswith("/s") for row in found] == [True, True, True, False]
    assert "is the limit; what may help:" in text
    assert "the limit" not in run(*line, "--quiet").stdout


class Slow(Dataset):
    """Samples that take their time."""

    def __init__(self, count: int, **seconds: float) -> None:
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def nbytes(self, rows: Any) -> int:
        return 1_000_000 * len(rows)  # batches are not read together

    def read(self, rows: Any) -> Any:
        time.sleep(self.seconds.get("read", 0))
        return rows

    def decode(self, place: int, raw: Any, out: Any) -> Any:
        if "decode" in self.seconds:
            time.sleep(self.seconds["decode"])
        return {"n": np.full(1, raw[place])}


@pytest.mark.parametrize(
    ("seconds", "limit", "advice"),
    [
        ({"read": 0.02}, "storage", "blocks"),
        ({"decode": 0.002}, "decoding", "bands and a window"),
    ],
)
def test_the_slowest_part_is_the_limit(seconds: Any, limit: str, advice: str) -> None:
    found = ml.bench(Slow(1000, **seconds), 4, workers=1, seconds=0.1)
    assert found.limit == limit
    assert advice in found.advice
    assert found.sample_bytes == 1_000_000
    # Readers are 16 and one thread decodes; nothing is faster than that.
    most = {"storage": 16 * 4 / 0.02, "decoding": 1 / 0.002}[limit]
    assert found.rates[limit] < 1.2 * most


@pytest.mark.parametrize(
    ("rates", "busy", "limit"),
    [
        ((100, 400, 1000), 0.1, "storage"),
        ((400, 100, 1000), 2.0, "decoding"),
        ((100, 400, 1000), 0.9, "python"),
        ((700, 800, 1000), 0.1, "python"),
    ],
)
def test_python_has_its_part_in_all_runs(rates: Any, busy: float, limit: str) -> None:
    storage, decoding, python = rates
    found = {"storage": storage, "decoding": decoding, "python": python}
    assert benching.limit_of(found, busy) == limit


def test_bench_of_no_samples_and_of_the_last_small_batch() -> None:
    with pytest.raises(InvalidInputError, match="no samples"):
        ml.bench(Slow(0))
    assert ml.bench(Slow(5), 4, seconds=0.01).rates["decoding"] > 0


def test_bench_of_samples_that_all_fail(tmp_path: Path) -> None:
    """It once went from one empty epoch to the next for ever."""
    data = ml.dataset(
        images(tmp_path, 3), {"x": ml.Field(decode=lambda data: [][len(data)])}, on_error="skip"
    )
    with (
        pytest.warns(UserWarning, match="failed and were left out"),
        pytest.raises(InvalidInputError, match="all samples failed"),
    ):
        ml.bench(data, 2, seconds=0.01)
