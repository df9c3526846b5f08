"""Choose which faults a session of cosmic-ray tries, and count what came of them.

python scripts/mutants_sample.py SESSION MODULE COUNT     keep COUNT of the faults
python scripts/mutants_sample.py SESSION                  print the score
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

_ANNOTATION = re.compile(r"\s*(def |class |\) ->|\w+: [^=]*$|[A-Z]\w+ = )|.*-> ")
"""Lines in which ``|`` joins types, which nothing evaluates."""


def sample(session: Path, module: Path, count: int) -> None:
    """Mark all but a sample of the faults as skipped."""
    lines = module.read_text().splitlines()
    with use_db(session) as work:
        jobs = sorted((item.job_id, item.mutations[0]) for item in work.work_items)
        wanted = [
            job
            for job, fault in jobs
            if not _is_idle(fault.operator_name, lines[fault.start_pos[0] - 1])
        ]
        kept = set(random.Random(0).sample(wanted, min(count, len(wanted))))
        skipped = WorkResult(worker_outcome=WorkerOutcome.SKIPPED)
        for job, _ in jobs:
            if job not in kept:
                work.set_result(job, skipped)
    print(f"mutants: {len(kept)} of {len(wanted)}")


def _is_idle(operator: str, line: str) -> bool:
    """Whether a fault changes nothing that runs: joined types, and what keeps us from slips."""
    if "BitOr" in operator and _ANNOTATION.match(line):
        return True
    return line.startswith("@dataclass")


def score(session: Path) -> None:
    """Print how many faults were noticed."""
    with use_db(session) as work:
        results = [
            result for _, result in work.results if result.worker_outcome == WorkerOutcome.NORMAL
        ]
    noticed = sum(result.test_outcome != TestOutcome.SURVIVED for result in results)
    print(f"mutants: {noticed} of {len(results)} noticed, {100 * noticed / len(results):.0f} %")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sample(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
    else:
        score(Path(sys.argv[1]))
