"""Where the workers of one server leave their counts for whichever of them is asked.

Prometheus asks one address and reaches any of the workers; each has to answer for all. So each
writes its counts to a file of its own every other second, and reads those of the others when it is
asked. What a worker has counted stays when it ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from comal.server.measures import Counts

SECONDS = 2.0
"""Between two writings."""
_PAIRED = ("requests", "reloads")
"""Tables whose keys are tuples, which JSON has not."""


class Board:
    """A folder with the counts of every worker.

    Parameters
    ----------
    folder
        Of the server alone; it is there already.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = f"{os.getpid()}-{os.urandom(4).hex()}.json"

    def post(self, counts: Counts) -> None:
        """Write what this worker has counted, in place of what it wrote before."""
        document: dict[str, Any] = asdict(counts)
        for name in _PAIRED:
            document[name] = [[list(key), value] for key, value in document[name].items()]
        part = self.folder / (self._own + ".part")
        part.write_text(json.dumps(document))
        part.replace(self.folder / self._own)

    def others(self) -> Iterator[Counts]:
        """What the other workers have written; of those that have ended without gauges."""
        for path in sorted(self.folder.glob("*.json")):
            if path.name != self._own:
                document = json.loads(path.read_text())
                for name in _PAIRED:
                    document[name] = {tuple(key): value for key, value in document[name]}
                if not _is_alive(int(path.name.partition("-")[0])):
                    document["gauges"] = {}
                yield Counts(**document)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
