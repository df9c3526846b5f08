"""Work that is planned once and done by many: machines of a batch array, a cluster, or this one.

A plan is a folder. Whoever runs a share of it makes the parts that are not done, each whole or not
at all; at the end the parts become one. Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.jobs.kinds import plan_raquet as plan_raquet
    from comal.jobs.kinds import plan_taco as plan_taco
    from comal.jobs.kinds import plan_tapalcatl as plan_tapalcatl
    from comal.jobs.kinds import plan_tortilla as plan_tortilla
    from comal.jobs.plans import Part as Part
    from comal.jobs.plans import Plan as Plan
    from comal.jobs.running import PartStatus as PartStatus
    from comal.jobs.running import Ran as Ran
    from comal.jobs.running import merge as merge
    from comal.jobs.running import run as run
    from comal.jobs.running import status as status

__all__, __getattr__, __dir__ = exports(__name__)
