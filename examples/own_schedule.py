"""A pipeline schedule of your own: 1F1B with more forwards in flight, so that messages have time (Zhuang et al., 2022).

A schedule is a function of (stages, micro-batches) that lists what each stage computes; `with_messages` adds the sends
and receives. Check it with our validator, draw it, and train with it:

    shoal check schedule examples.own_schedule:eager
    shoal explain examples.own_schedule:eager --stages 4 --microbatches 8 --svg eager.svg
    shoal train quickstart --mesh pipeline=2 --pipeline.schedule examples.own_schedule:eager
"""

from shoal.strategies.pipeline.schedule import Schedule, parse_row
from shoal.strategies.pipeline.timing import with_messages


def eager(stages: int, microbatches: int) -> Schedule:
    """1F1B that holds up to 2·(p − s) − 1 micro-batches on stage s instead of p − s."""
    in_flight = [min(2 * (stages - stage) - 1, microbatches) for stage in range(stages)]
    rows = [
        # Phase 1: all forwards in flight but one. Phase 2: one forward, one backward. Phase 3: the backwards left.
        [f"F{k}" for k in range(held - 1)]
        + [f"F{k + held - 1} B{k}" for k in range(microbatches - held + 1)]
        + [f"B{k}" for k in range(microbatches - held + 1, microbatches)]
        for held in in_flight
    ]
    return Schedule(
        "eager", microbatches, with_messages([parse_row(" ".join(row)) for row in rows]), tuple(in_flight)
    )
