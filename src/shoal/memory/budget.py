"""`--memory.budget`: finds the fastest settings whose measured peak stays below it, before a run starts.

The search predicts with formulas, and real workers try what should fit (`trial.py`).

Phase 1: try the run as it is. If it fits, that is all.
Phase 2: predict the peak and the time of every combination of techniques. Savings in activations multiply; other
savings and time costs add. Savings come from the formulas of `shoal memory`, costs from a table; a trial of a technique
replaces both. Returning freed memory leaves only memory in use: the formula's total.
Phase 3: try the fastest combination that should fit, and go on while another should be faster than the best so far.
Phase 4: if none has fitted, try the combinations that should save most.

A technique that the model refuses (a trial raises a ConfigError) is left out, with all combinations that include it.
Techniques that change what is computed (8-bit state, bf16 parameters) are considered only if no others fit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from shoal.comm.join import own_place
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.launch.process.template import keeping_templates
from shoal.memory.techniques import (
    FREED,
    TECHNIQUES,
    MemoryVariant,
    Parts,
    combined,
    formula_parts,
    keeps_freed_memory,
    single_variants,
)
from shoal.memory.trial import Trial, check_can_try, try_each
from shoal.strategies.memory import ACTIVATIONS, WORKING
from shoal.training.stop import Series

MARGIN = 1.05
"""The budget must exceed a measured peak by this factor, because peaks differ from run to run."""
HEAP_MARGIN = 1.5
"""The same for workers whose C library keeps freed memory: the gaps of its heap grow from step to step.

Transformers had peaks up to 1.42 times as high in 150 steps as in another run's trial of five (50.0 and 35.3 MB).
"""
MOST_TRIALS = 5
"""The largest number of trials in phase 3, each time."""
MOST_SMALLEST = 2
"""The largest number of trials in phase 4."""
FASTER = 0.97
"""A variant is tried only if it should take less than this part of the best time: times of few steps differ as much."""

TIMED = 3
"""Steps that are measured in each trial."""
Try = Callable[[RunConfig], Trial]
Formula = Callable[[RunConfig], Parts | None]
"""None where there is no formula."""


@dataclass(frozen=True)
class Prediction:
    """The predicted needs of a variant."""

    peak: float
    seconds: float


class Search:
    """The trials so far, and predictions from them."""

    def __init__(self, config: RunConfig, trying: Try, formula: Formula) -> None:
        self._config, self._try = config, trying
        # Called when first needed: it takes a pass without memory, and a run that fits as it is needs none.
        self._formula = cache(formula)
        self.singles = single_variants(config)
        self.tried: dict[MemoryVariant, Trial] = {}
        self.refused: dict[MemoryVariant, str] = {}
        """Why a variant could not be tried."""
        self._underestimates: dict[MemoryVariant, float] = {}
        """How much higher peaks were than predicted."""

    def run(self, budget: int) -> None:
        """Try until the fastest that fits is found, or nothing is left that might fit."""
        self._add(MemoryVariant(self._config))
        if self.fitting(budget):
            return
        exact = [each for each in self.singles if each.is_exact]
        self._look_among(exact, budget)
        if not self.fitting(budget) and len(exact) < len(self.singles):
            self._look_among(self.singles, budget)

    @property
    def plain(self) -> Trial:
        """The run as it is."""
        return next(trial for variant, trial in self.tried.items() if not variant.flags)

    def fitting(self, budget: int) -> list[MemoryVariant]:
        """The tried variants that fit."""
        return [each for each, trial in self.tried.items() if needed(each, trial.peak) <= budget]

    @property
    def smallest(self) -> MemoryVariant:
        """The tried variant that fits the smallest budget."""
        return min(self.tried, key=lambda each: needed(each, self.tried[each].peak))

    def _look_among(self, singles: Sequence[MemoryVariant], budget: int) -> None:
        for variant in singles:
            if variant not in self.refused and self._saved(variant) is None:
                self._add(variant)
        variants = [*singles, *combined(self._config, [*singles])]
        # Refused variants do not count: they take little time, and leave fewer to try.
        most = len(self.tried) + MOST_TRIALS
        while len(self.tried) < most:
            best = min((self.tried[each].seconds for each in self.fitting(budget)), default=math.inf)
            predicted = {each: self._predicted(each) for each in self._untried(variants)}
            promising = {
                each: found
                for each, found in predicted.items()
                if needed(each, found.peak) <= budget and found.seconds < FASTER * best
            }
            if not promising:
                break
            self._add(min(promising, key=lambda each: (promising[each].seconds, promising[each].peak)))
        most = len(self.tried) + MOST_SMALLEST
        while len(self.tried) < most and not self.fitting(budget) and (left := self._untried(variants)):
            self._add(min(left, key=lambda each: needed(each, self._predicted(each).peak)))

    def _untried(self, variants: Sequence[MemoryVariant]) -> list[MemoryVariant]:
        """The variants that may still be tried: without refused settings."""
        refused = [{*each.settings} for each in self.refused]
        return [
            each
            for each in variants
            if each not in self.tried and not any(some <= {*each.settings} for some in refused)
        ]

    def _add(self, variant: MemoryVariant) -> None:
        predicted = self._predicted(variant).peak if self.tried else 0.0
        try:
            trial = self._try(variant.config)
        except ConfigError as error:
            if not variant.flags:
                raise  # the user's own settings
            self.refused[variant] = error.message
            self._find_refused_part(variant)
            return
        self.tried[variant] = trial
        self._underestimates[variant] = trial.peak - predicted if len(variant.techniques) > 1 else 0.0

    def _find_refused_part(self, variant: MemoryVariant) -> None:
        """Try the techniques of a refused combination alone: otherwise each combination with the bad one is tried."""
        for part in self._parts(variant) if len(variant.techniques) > 1 else ():
            if part not in self.tried and part not in self.refused:
                self._add(part)
            if part in self.refused:
                return

    def _parts(self, variant: MemoryVariant) -> list[MemoryVariant]:
        """The variants with one technique that make up a combination."""
        return [each for each in self.singles if each.settings[0] in variant.settings]

    def _predicted(self, variant: MemoryVariant) -> Prediction:
        parts = self._parts(variant)
        saved = {each: self._saved(each) or 0.0 for each in parts}
        activations = self._activations()
        of_activations = [each for each in parts if _takes(each, ACTIVATIONS)]
        left = math.prod(min(1.0, max(0.0, 1 - saved[each] / activations)) for each in of_activations)
        others = sum(saved[each] for each in parts if each not in of_activations)
        # If a part of this variant needed more than predicted, so will this one.
        included = (each for each in self._underestimates if {*each.settings} <= {*variant.settings})
        above = max((self._underestimates[each] for each in included), default=0.0)
        tried = {each: self.tried[each].seconds / self.plain.seconds for each in parts if each in self.tried}
        ratio = 1 + sum(tried.get(each, each.usual_time) - 1 for each in parts)
        peak = self.plain.peak - activations * (1 - left) - others + max(0.0, above)
        return Prediction(peak, self.plain.seconds * ratio)

    def _saved(self, single: MemoryVariant) -> float | None:
        """Bytes that one technique saves: as tried, or by formula."""
        if single in self.tried:
            return self.plain.peak - self.tried[single].peak
        plain, mine = self._formula(self._config), self._formula(single.config)
        if plain is None or mine is None:
            return None
        if _takes(single, FREED):
            known = [each for each in plain.values() if each is not None]
            return max(0, self.plain.peak - sum(known)) if len(known) == len(plain) else None
        pairs = ((plain.get(name, 0), mine.get(name, 0)) for name in {**plain, **mine})
        return sum(before - after for before, after in pairs if before is not None and after is not None)

    def _activations(self) -> float:
        """Activations of a pass by formula; without one, a little more than any technique has saved."""
        plain = self._formula(self._config) or {}
        if known := plain.get(ACTIVATIONS):
            return known + (plain.get(WORKING) or 0)
        tried = (each for each in self.singles if each in self.tried and _takes(each, ACTIVATIONS))
        return max(1.0, 1.05 * max((self.plain.peak - self.tried[each].peak for each in tried), default=0))


def needed(variant: MemoryVariant, peak: float) -> float:
    """The smallest budget that a variant fits which had this peak in a trial."""
    return peak * (HEAP_MARGIN if keeps_freed_memory(variant.config) else MARGIN)


def _takes(single: MemoryVariant, component: str) -> bool:
    return TECHNIQUES[single.techniques[0]].takes_away == component


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
    """Techniques that the model refuses, and why."""

    @property
    def reason(self) -> str:
        """The choice and its reason, in a sentence."""
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
    if is_one_worker or own_place() is not None:
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
