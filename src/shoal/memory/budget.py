"""`--memory.budget`: finds the fastest settings whose measured peak stays below it, before a run starts.

The search (`search.py`) decides which settings real workers try (`trial.py`).
"""

import math
import os
from dataclasses import dataclass

from shoal.comm.join import place_from_environment
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.launch.process.template import keeping_templates
from shoal.memory.search import MARGIN, Formula, Search, Try, needed
from shoal.memory.technique_table import formula_parts
from shoal.memory.techniques import MemoryVariant
from shoal.memory.trial import Trial, check_can_try, try_each
from shoal.training.stop import Series

TIMED = 3
"""Steps that are measured in each trial."""


@dataclass(frozen=True)
class BudgetChoice:
    """The settings for a budget."""

    variant: MemoryVariant
    trial: Trial
    plain: Trial
    budget: int
    num_tried: int
    """Settings that were tried, the run as it is among them."""
    left_out: str = ""
    """What the model refuses, and why."""

    @property
    def reason(self) -> str:
        """What was chosen, and why, in a sentence."""
        peak, plain = (f"{each.peak / 1e6:,.1f} MB" for each in (self.trial, self.plain))
        budget = f"{self.budget / 1e6:,.1f} MB"
        if not self.variant.flags:
            return f"the run fits in {budget} as it is: {peak} at the peak"
        lossy = "" if self.variant.is_exact else "; nothing that computes the same fits"
        ratio = f"{self.trial.seconds / self.plain.seconds:.2f} × the time of a step, "
        is_known = not (self.trial.was_delayed or self.plain.was_delayed)
        return (
            f"{self.variant.flags}: {peak} at the peak instead of {plain}, {ratio * is_known}the "
            f"fastest of {self.num_tried} tried settings that fits in {budget}{lossy}{self.left_out}"
        )


def budgeted(config: RunConfig, is_one_worker: bool = False) -> tuple[RunConfig, str]:
    """The run with settings that fit its budget, and a sentence about them. Call it before workers are started."""
    if is_one_worker or place_from_environment(os.environ) is not None:
        raise ConfigError(
            "--memory.budget needs workers that shoal starts itself: it tries several settings before training",
            "Run `shoal train` with the same settings on one machine, then use the --memory settings that it reports.",
        )
    with Series():
        choice = within_budget(config)
    return choice.variant.config, f"--memory.budget {config.memory.budget}: {choice.reason}"


def within_budget(
    config: RunConfig,
    trying: Try | None = None,
    formula: Formula = formula_parts,
) -> BudgetChoice:
    """The run with the fastest settings that fit its budget; if none do, a ConfigError with the smallest that would.

    Without `trying`, real workers do.
    """
    check_can_try(config)
    budget = config.memory.budget_bytes
    assert budget is not None
    search = Search(config, trying or (lambda each: try_each([each], TIMED)[0]), formula)
    with keeping_templates():
        search.run(budget)
    fitting = search.fitting(budget)
    if not fitting:
        variant = search.smallest
        smallest = math.ceil(needed(variant, search.tried[variant].peak) * MARGIN / 1e6)
        raise ConfigError(
            f"--memory.budget {config.memory.budget} is too small: the smallest that would do is {smallest}MB"
            + f", with {variant.flags}" * bool(variant.flags)
            + _left_out(search),
            f"Use --memory.budget {smallest}MB, a smaller --batch-size, or more workers with --strategy zero.",
        )
    best = min(fitting, key=lambda each: search.tried[each].seconds)
    return BudgetChoice(best, search.tried[best], search.plain, budget, len(search.tried), _left_out(search))


def _left_out(search: Search) -> str:
    """The end of a sentence that names what the model refuses; empty if that is nothing."""
    by_techniques: dict[tuple[str, ...], list[MemoryVariant]] = {}
    for each in search.refused:
        # A combination that includes a refused technique says nothing more.
        if not any({*other.settings} < {*each.settings} for other in search.refused):
            by_techniques.setdefault(each.techniques, []).append(each)
    parts = [
        f"{', '.join(each.flags for each in alike)} ({search.refused[alike[0]]})"
        for alike in by_techniques.values()
    ]
    return f"; left out: {', '.join(parts)}" if parts else ""
