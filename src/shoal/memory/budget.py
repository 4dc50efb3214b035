"""`--memory.budget`: finds the fastest settings whose measured peak stays below it, before a run starts.

The search (`search.py`) runs in rank 0 of real workers, which try one variant after the other. They are started once,
and once more for variants with off-loading, which need processes of their own (`trial.py`): the search then goes on
with what is known. It is a function of the trials, so the launcher repeats it from what is known to find the choice.
"""

import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from shoal.comm.agree import gather_texts, share_text
from shoal.comm.group import Group
from shoal.comm.join import place_from_environment
from shoal.config.plain import from_plain, to_plain
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.launch import programs
from shoal.launch.one_worker import joined_group
from shoal.memory.search import MARGIN, Formulas, Parts, Search, Try
from shoal.memory.technique_table import formula_parts
from shoal.memory.techniques import MemoryVariant, single_variants
from shoal.memory.trial import Trial, check_can_try, fullest_of, generated, offloads, tried
from shoal.training.build import torch_settings
from shoal.training.memory.peak import warm_up

TIMED = 3
"""Steps that are measured in each trial."""


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


def within_budget(
    config: RunConfig,
    trying: Try | None = None,
    formula: Callable[[RunConfig], Parts | None] = formula_parts,
) -> BudgetChoice:
    """The run with the fastest settings that fit its budget; if none do, a ConfigError with the smallest that would.

    Without `trying`, real workers do.
    """
    check_can_try(config)
    formulas = {
        each.flags: formula(each.config) for each in (MemoryVariant(config), *single_variants(config))
    }
    if trying is not None:
        return _chosen(config, trying, formulas)
    known: dict[str, Trial] = {}
    while True:
        try:
            return _chosen(config, KnownTrials(known), formulas)
        except UnknownTrialError:
            known |= _explored(config, known, formulas)


def _chosen(config: RunConfig, trying: Try, formulas: Formulas) -> BudgetChoice:
    budget = config.memory.budget_bytes
    assert budget is not None
    search = Search(config, trying, formulas)
    search.run(budget)
    fitting = search.fitting(budget)
    if not fitting:
        variant = min(search.tried, key=lambda each: search.tried[each].peak)
        smallest = math.ceil(search.tried[variant].peak * MARGIN * MARGIN / 1e6)
        raise TooSmallError(
            f"--memory.budget {config.memory.budget} is too small: the smallest that would do is {smallest}MB"
            + f", with {variant.flags}" * bool(variant.flags),
            f"Use --memory.budget {smallest}MB, a smaller --batch-size, or more workers with --strategy zero.",
        )
    best = min(fitting, key=lambda each: search.tried[each].seconds)
    return BudgetChoice(best, search.tried[best], search.plain, budget)


class TooSmallError(ConfigError):
    """No settings fit the budget."""


# Trials in workers.


class UnknownTrialError(Exception):
    """The search needs a trial that has not been made."""


@final
class KnownTrials:
    """Answers with trials that have been made, and makes others if it can."""

    def __init__(self, known: Mapping[str, Trial], trying: Try | None = None) -> None:
        self._known, self._try = known, trying

    def __call__(self, config: RunConfig) -> Trial:
        """The trial of a variant."""
        key = key_of(config)
        if key in self._known:
            return self._known[key]
        if self._try is None:
            raise UnknownTrialError
        return self._try(config)


def key_of(config: RunConfig) -> str:
    """What distinguishes the variants of one run."""
    return json.dumps(to_plain(config), sort_keys=True)


def _explored(config: RunConfig, known: Mapping[str, Trial], formulas: Formulas) -> dict[str, Trial]:
    """New trials: the search in new workers, until it ends or needs others."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trials.json"
        given = {"config": to_plain(config), "known": known, "formulas": formulas, "path": str(path)}
        settings = Path(folder) / "given.json"
        settings.write_text(json.dumps(given))
        programs.by_processes(__file__, [str(settings)], config.launch.workers)
        return {key: Trial(*each) for key, each in json.loads(path.read_text()).items()}


def work(config: RunConfig, known: Mapping[str, Trial], formulas: Formulas, path: Path) -> None:
    """Explore as one worker: rank 0 decides what is tried."""
    warnings.simplefilter("ignore")  # of gradients on generated data, which mean nothing here
    with joined_group(config) as group, torch_settings(config) as device:
        warm_up(device)
        if group.rank == 0:
            leading = _LeadingTrials(device, group)
            with suppress(TooSmallError, UnknownTrialError):  # the launcher comes to the same result
                _chosen(config, KnownTrials(known, leading), formulas)
            share_text(group, "")
            path.write_text(json.dumps(leading.made))
        else:
            while text := share_text(group, ""):
                _together(from_plain(json.loads(text)), device, group)
        group.barrier().wait()


@final
class _LeadingTrials:
    """Trials that all workers make when rank 0 says so."""

    def __init__(self, device: torch.device, group: Group) -> None:
        self._device, self._group = device, group
        self.made: dict[str, Trial] = {}
        self._kind: bool | None = None

    def __call__(self, config: RunConfig) -> Trial:
        self._kind = offloads(config) if self._kind is None else self._kind
        if offloads(config) != self._kind:
            raise UnknownTrialError
        share_text(self._group, json.dumps(to_plain(config)))
        self.made[key_of(config)] = trial = _together(config, self._device, self._group)
        return trial


def _together(config: RunConfig, device: torch.device, group: Group) -> Trial:
    """One variant, as all workers measure it."""
    mine = tried(generated(config), device, group, TIMED)
    return fullest_of([json.loads(each) for each in gather_texts(group, json.dumps(mine))])


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text())
    tried_before = {key: Trial(*each) for key, each in given["known"].items()}
    work(from_plain(given["config"]), tried_before, given["formulas"], Path(given["path"]))
