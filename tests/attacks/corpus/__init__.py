"""The attack files, one for each thing that can be wrong, and what must come of them."""

from tests.attacks.corpus import (
    archives,
    containers,
    documents,
    folders,
    headers,
    names,
    parquets,
    rows,
)
from tests.attacks.corpus.base import ATTACKS, Attack

MODULES = (containers, headers, rows, archives, parquets, documents, names, folders)
"""Each puts its attacks into `ATTACKS` when it is loaded."""

__all__ = ["ATTACKS", "MODULES", "Attack"]
