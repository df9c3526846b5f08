"""What several tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"

needs_shared = pytest.mark.skipif(
    not (SHARED / "fixtures").is_dir(),
    reason="reference files of the existing writers are not beside the checkout",
)
