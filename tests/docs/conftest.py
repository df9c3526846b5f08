"""What the examples of the documents start from: a folder with the output of ``comal demo``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from comal import demo


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `comal demo` writes."""
    return demo.run(out=tmp_path_factory.mktemp("demo") / "comal-demo").folder


@pytest.fixture
def workplace(demo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with a copy of it."""
    shutil.copytree(demo_folder, tmp_path / "comal-demo")
    monkeypatch.chdir(tmp_path)
    return tmp_path
