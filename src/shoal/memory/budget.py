"""`--memory.budget`: finds the fastest settings whose measured peak stays below it.

Phase 1: try the run as it is, and with each technique alone: peak and time of a step, in real workers.
Phase 2: predict the combinations from that. What two techniques leave of the activations multiplies; other savings and
all costs in time add up. Try those that are predicted to be the fastest, and the one that saves most.
Phase 3: of all that were tried and fit, take the fastest.

Techniques that change what is computed (8-bit state, bf16 parameters) are tried only if no other settings fit.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.comm.join import place_from_environment
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.memory.formulas import ACTIVATIONS
from shoal.memory.techniques import TECHNIQUES, MemoryVariant, combined, single_variants
from shoal.memory.trial import Trial, check_can_try, try_each

MARGIN = 1.05
"""A peak may differ from run to run: so much must be free."""
AT_ONCE = 5
"""Combinations that are tried; if none of them fits, also the one that saves most."""

Try = Callable[[Sequence[RunConfig]], list[Trial]]


@dataclass(frozen=True)
class BudgetChoice:
    """The settings for a budget."""

    variant: MemoryVariant
    trial: Trial
    plain: Trial
    budget: int

    @property
    def reason(self) -> str:
        """What was chosen, and why, in a sentence."""
        peak, plain = (f"{each.peak / 1e6:,.1f} MB" for each in (self.trial, self.plain))
        budget = f"{self.budget / 1e6:,.1f} MB"
        if not self.variant.flags:
            return f"the run fits in {budget} as it is: {peak} at the peak"
        lossy = "" if self.variant.is_exact else "; nothing that computes the same fits"
        ratio = self.trial.seconds / self.plain.seconds
        return (
            f"{self.variant.flags}: {peak} at the peak instead of {plain}, {ratio:.2f} × the time of a step, the "
            f"fastest that fits in {budget}{lossy}"
        )


def budgeted(config: RunConfig, is_one_worker: bool = False) -> tuple[RunConfig, str]:
    """The run with settings that fit its budget, and a sentence about them. Call it before workers are started."""
    if is_one_worker or place_from_environment(os.environ) is not None:
        raise ConfigError(
            "--memory.budget needs workers that shoal starts itself: it tries several settings before training",
            "Run `shoal train` with the same settings on one machine, then use the --memory settings that it reports.",
        )
    choice = within_budget(config)
    return choice.variant.config, f"--memory.budget {config.memory.budget}: {choice.reason}"


def within_budget(config: RunConfig, trying: Try = try_each) -> BudgetChoice:
    """The run with the fastest settings that fit its budget; if none do, a ConfigError with the smallest that would."""
    budget = config.memory.budget_bytes
    assert budget is not None
    check_can_try(config)
    search = _Search(config, trying)
    singles = single_variants(config)
    search.add([MemoryVariant(config)])
    if not search.fitting(budget):
        exact = [each for each in singles if each.is_exact]
        search.look_among(exact, budget)
        if not search.fitting(budget) and len(exact) < len(singles):
            search.look_among(singles, budget)
    fitting = search.fitting(budget)
    if not fitting:
        variant = min(search.tried, key=lambda each: search.tried[each].peak)
        smallest = math.ceil(search.tried[variant].peak * MARGIN * MARGIN / 1e6)
        raise ConfigError(
            f"--memory.budget {config.memory.budget} is too small: the smallest that would do is {smallest}MB"
            + f", with {variant.flags}" * bool(variant.flags),
            f"Use --memory.budget {smallest}MB, a smaller --batch-size, or more workers with --strategy zero.",
        )
    best = min(fitting, key=lambda each: search.tried[each].seconds)
    return BudgetChoice(best, search.tried[best], search.plain, budget)


class _Search:
    """What was tried so far."""

    def __init__(self, config: RunConfig, trying: Try) -> None:
        self._config, self._try = config, trying
        self.tried: dict[MemoryVariant, Trial] = {}

    @property
    def plain(self) -> Trial:
        """The run as it is."""
        return next(trial for variant, trial in self.tried.items() if not variant.flags)

    def add(self, variants: Sequence[MemoryVariant]) -> None:
        """Try variants that were not tried yet."""
        new = [variant for variant in variants if variant not in self.tried]
        if new:
            self.tried |= dict(zip(new, self._try([each.config for each in new]), strict=True))

    def fitting(self, budget: int) -> list[MemoryVariant]:
        """What fits, of all that were tried."""
        return [variant for variant, trial in self.tried.items() if trial.peak * MARGIN <= budget]

    def look_among(self, singles: list[MemoryVariant], budget: int) -> None:
        """Try techniques alone, then the combinations that are promising."""
        self.add(singles)
        fastest = min((self.tried[each].seconds for each in self.fitting(budget)), default=math.inf)
        predicted = {each: self._predicted(each, singles) for each in combined(self._config, singles)}
        promising = [
            each
            for each, (peak, seconds) in predicted.items()
            if peak * MARGIN <= budget and seconds < fastest
        ]
        promising.sort(key=lambda each: predicted[each][1])
        smallest = sorted(predicted, key=lambda each: predicted[each][0])
        if not promising and not self.fitting(budget):  # a prediction may be wrong
            promising = smallest
        self.add(promising[:AT_ONCE])
        if not self.fitting(budget):
            self.add(smallest[:1])

    def _predicted(self, variant: MemoryVariant, singles: list[MemoryVariant]) -> tuple[float, float]:
        """Peak and time of a combination, from its parts."""
        parts = [each for each in singles if each.settings[0] in variant.settings]
        saved = {each: self.plain.peak - self.tried[each].peak for each in parts}
        of_activations = [each for each in parts if TECHNIQUES[each.techniques[0]].takes_away == ACTIVATIONS]
        # No technique saves more activations than there are; the best one shows how many there are at least.
        all_saved = [
            self.plain.peak - trial.peak
            for each, trial in self.tried.items()
            if len(each.techniques) == 1 and TECHNIQUES[each.techniques[0]].takes_away == ACTIVATIONS
        ]
        activations = max(1.0, 1.05 * max(all_saved, default=0))
        left = math.prod(min(1.0, 1 - saved[each] / activations) for each in of_activations)
        others = sum(saved[each] for each in parts if each not in of_activations)
        seconds = self.plain.seconds + sum(self.tried[each].seconds - self.plain.seconds for each in parts)
        return self.plain.peak - activations * (1 - left) - others, seconds
