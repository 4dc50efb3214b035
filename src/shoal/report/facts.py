"""What single steps of a worker say, beside its shares: its own work, what stalled it, and what it noted at the end.

Own work is all time outside of exchanges. An exchange waits for others, so only own work tells which worker is slow.

    step = own work (data, compute, rest) + stalls (evaluation, saving) + exchanges (waiting, moving)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from shoal.events.file import Record
from shoal.events.steps import StepRecord

Work = Literal["data", "compute", "rest"]
Steps = Mapping[int, float]
"""A number for each step."""


def _steps() -> dict[int, float]:
    return {}


@dataclass(frozen=True)
class RankFacts:
    """Seconds are of the steps after the warm-up, each under the number of its step."""

    seconds: Steps = field(default_factory=_steps)
    """How long the step took."""
    own_s: Steps = field(default_factory=_steps)
    """Own work."""
    data_s: Steps = field(default_factory=_steps)
    """Of it: making or loading batches."""
    compute_s: Steps = field(default_factory=_steps)
    """Of it: forward, backward, update."""
    stalls_s: Mapping[str, Steps] = field(default_factory=dict[str, Steps])
    """Evaluation and saving, by name, of the steps of a profile that had them."""
    synchronised_s: Steps = field(default_factory=_steps)
    """How long the host waited for its GPU, of the steps of a profile that did."""
    synchronised: Steps = field(default_factory=_steps)
    """How often."""
    rows: Steps = field(default_factory=_steps)
    """Samples of the step, where a profile knows them."""
    checkpoints_s: Sequence[float] = ()
    """How long each checkpoint of a run took, which is no part of its steps."""
    parameters: Record = field(default_factory=dict[str, Any])
    """Which parameters never had a gradient, where a profile knows it."""
    memory: Record = field(default_factory=dict[str, Any])
    """The limit of memory that was nearest at the end, and how much was used."""

    def work_s(self, kind: Work, step: int) -> float:
        """A part of the own work of a step."""
        data_s, compute_s = self.data_s[step], self.compute_s[step]
        rest_s = max(0.0, self.own_s[step] - data_s - compute_s)
        return {"data": data_s, "compute": compute_s, "rest": rest_s}[kind]


def facts_of(records: Sequence[Record], steps: Sequence[StepRecord]) -> RankFacts:
    """The facts of a worker, from its records of other events and the steps that count."""
    steps = [step for step in steps if step.totals_ns]  # on a GPU most steps of a run are not measured
    names = dict.fromkeys(name for step in steps for name in step.stalls_ns)
    synchronised = [step for step in steps if step.synchronised]
    saves = [record for record in records if record["event"] == "checkpoint"]
    closing = records[-1] if records else {}
    return RankFacts(
        {step.step: step.seconds for step in steps},
        {step.step: step.seconds - step.exchange_s - step.idle_s for step in steps},
        {step.step: step.totals_ns.get("data", 0) / 1e9 for step in steps},
        {step.step: step.totals_ns.get("compute", 0) / 1e9 for step in steps},
        {
            name: {step.step: step.stalls_ns[name] / 1e9 for step in steps if name in step.stalls_ns}
            for name in names
        },
        {step.step: step.synchronised_ns / 1e9 for step in synchronised},
        {step.step: step.synchronised for step in synchronised},
        {step.step: step.rows for step in steps if step.rows},
        [record["seconds"] for record in saves if "seconds" in record],
        closing.get("parameters") or {},
        closing.get("memory") or {},
    )
