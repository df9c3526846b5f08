"""All targets by name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fuzz import (
    answers,
    geometries,
    parquets,
    raquets,
    serving,
    tacos,
    tapalcatls,
    tortillas,
    zips,
)
from tests.fuzz.base import Target

TARGETS: Mapping[str, Target] = {
    **zips.TARGETS,
    **parquets.TARGETS,
    **tacos.TARGETS,
    **tortillas.TARGETS,
    **raquets.TARGETS,
    **tapalcatls.TARGETS,
    **geometries.TARGETS,
    **answers.TARGETS,
    **serving.TARGETS,
}
