"""The answers that come with the trees of the existing writers."""

from __future__ import annotations

import json
from typing import Any

from tests.support import SHARED

FOLDER = SHARED / "fixtures" / "tapalcatl"
_ANSWERS = FOLDER / "expected.json"
EXPECTED: dict[str, Any] = json.loads(_ANSWERS.read_text()) if _ANSWERS.is_file() else {}


def queries(name: str) -> list[dict[str, Any]]:
    """The questions about one tree; none where the trees are not beside the checkout."""
    found: list[dict[str, Any]] = EXPECTED.get(name, {}).get("queries", [])
    return found
