"""Compares a strategy with `single`, step by step: the same global batches, and every step from the same state.

The workers are threads. After each of their steps rank 0 puts the state together from all workers' pieces. Then one
machine trains; after each of its steps the two states are compared, and it goes on from the workers' state: so
roundings do not add up, and a difference belongs to one step.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.comm.threads.group import run_threads
from shoal.config.schema import RunConfig
from shoal.config.sections.exchange import compressions
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError
from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.replicas.user_sync import is_exact
from shoal.strategies.server.settings import ServerConfig
from shoal.training import worker
from shoal.training.hooks.hook import Hook
from shoal.training.observer import Silent
from shoal.training.progress import Progress
from shoal.training.run import Run
from shoal.verify.finding import Finding, Outcome, Phase
from shoal.verify.rounding import apart, of_sums, of_update
from shoal.verify.seen import Enough, is_random, is_shared

State = dict[str, Tensor]
FIRST_MOMENTS = (".exp_avg", ".momentum_buffer")
"""Optimizer states that show the gradient of a step that began from the same state."""


@dataclass
class Records:
    """What one worker saw."""

    samples: list[list[int]] = field(default_factory=list[list[int]])
    states: list[State] = field(default_factory=list[State])
    """After each step the whole state on rank 0, and on other workers the whole tensors that they hold."""


class Recording(Hook):
    """Keeps the state after every step."""

    def __init__(self, run: Run) -> None:
        self._run, self.records = run, Records()

    def before_step(self, progress: Progress, num_samples: int) -> None:
        """Keep the samples that this worker gets."""
        run = self._run
        rank = run.strategy.data_rank
        mine = run.division(progress).step(progress.epoch, progress.consumed, num_samples, rank)
        self.records.samples.append(mine.tolist())

    def after_step(self, step: int, num_samples: int) -> None:
        """Keep the state; a collective."""
        strategy, group = self._run.strategy, self._run.group
        strategy.consolidate()
        pieces = strategy.pieces()
        whole = {name: tensor.clone() for name, tensor in WholeTensors(pieces, group, ("model.", "optim."))}
        held = {piece.name: piece.values.clone() for piece in pieces if piece.is_whole}
        own = {name: tensor for name, tensor in held.items() if name.startswith(("model.", "optim."))}
        self.records.states.append(own if group.rank else whole)


class Comparing(Recording):
    """One machine, beside the records of all workers."""

    def __init__(self, run: Run, config: RunConfig, ranks: Sequence[Records], outcome: Outcome) -> None:
        super().__init__(run)
        self._config, self._ranks, self._outcome = config, ranks, outcome
        self._before: State = {}

    def before_step(self, progress: Progress, num_samples: int) -> None:
        """Compare the samples of the step."""
        super().before_step(progress, num_samples)
        self._before = {piece.name: piece.values.clone() for piece in self._run.strategy.pieces()}
        if progress.step >= len(self._ranks[0].samples):
            raise Enough
        # Workers that share a copy of the model have the same samples.
        shares = {
            tuple(each.samples[progress.step]) for each in self._ranks if len(each.samples) > progress.step
        }
        drawn = sorted(sample for share in shares for sample in share)
        expected = sorted(self.records.samples[-1])
        if drawn != expected:
            size = len({*expected} - {*drawn}) / len(expected)
            cause = (
                f"together, the workers have {len(drawn)} samples, and one machine has {len(expected)} others"
            )
            self._stop(progress.step, "data", None, "samples", size, 0.0, cause)

    def after_step(self, step: int, num_samples: int) -> None:
        """Compare the state, and go on from the workers'."""
        super().after_step(step, num_samples)
        expected, theirs = self.records.states.pop(), self._ranks[0].states[step]
        limit = self._limit(num_samples)
        # The gradient comes first: a wrong one makes wrong weights.
        for name in sorted(expected, key=lambda name: (not name.endswith(FIRST_MOMENTS), name)):
            tensor = expected[name]
            allowed = self._allowed(name, expected, limit)
            for rank, records in enumerate(self._ranks):
                found = records.states[step].get(name) if len(records.states) > step else None
                if (found is None and rank) or not tensor.is_floating_point():
                    continue
                size = float("inf") if found is None else _beyond(found, tensor, allowed)
                if size > 1:
                    self._differs(
                        step, rank, name, apart(found, tensor) if found is not None else size, limit
                    )
        self._outcome.steps = step + 1
        self._run.strategy.load(theirs)

    def _differs(self, step: int, rank: int, name: str, size: float, limit: float) -> None:
        kind, _, tensor = name.partition(".")
        special = [m for m in self._run.model.modules() if is_random(m) or is_shared(m)]
        if special:
            cause = f"{type(special[0]).__name__} computes other outputs for a share than for the whole batch"
            self._stop(step, "forward", None, tensor, size, limit, cause, is_comparable=False)
        if reason := of_its_own(self._config):
            self._stop(step, "exchange", None, tensor, size, limit, reason, is_comparable=False)
        phase: Phase = "exchange" if name.endswith(FIRST_MOMENTS) else "update"
        what = "the sum of the gradients is" if phase == "exchange" else "the weights after the update are"
        if kind == "optim" and phase == "update":
            what = "the optimizer's state is"
        if rank:
            cause = f"rank {rank} has another value than rank 0: the replicas are no longer one model"
        else:
            cause = f"from the same state and samples, {what} not one machine's"
        self._stop(step, phase, rank or None, tensor, size, limit, cause)

    def _stop(
        self,
        step: int,
        phase: Phase,
        rank: int | None,
        tensor: str,
        size: float,
        limit: float,
        cause: str,
        is_comparable: bool = True,
    ) -> None:
        self._outcome.finding = Finding(
            step, phase, rank, tensor, size, limit, cause, is_comparable=is_comparable
        )
        raise Enough

    def _limit(self, num_samples: int) -> float:
        params = [*self._run.model.parameters()]
        widest = max((param.numel() // len(param) for param in params if param.ndim), default=1)
        half = {"bf16": "bfloat16", "fp16": "float16"}
        precision = half.get(self._run.config.precision, "float32")
        return of_sums(precision, num_samples + widest, max(len(params), 1))

    def _allowed(self, name: str, expected: State, limit: float) -> Tensor:
        """How far rounding may move each element: of a weight, as far as it moves the gradient that changes it.

        Adam divides a gradient by its own size; so an element whose gradient is a rounding may move by a whole update.
        """
        tensor = expected[name].double()
        largest = float(tensor.abs().max()) if tensor.numel() else 0.0
        moment = expected.get(f"optim.{name.partition('.')[2]}.exp_avg")
        if not name.startswith("model.") or name not in self._before:
            return torch.full_like(tensor, limit * largest)
        change = float((tensor - self._before[name].double()).abs().max())
        room = torch.full_like(tensor, of_update(expected[name].dtype) * largest + limit * change)
        if moment is not None:
            part = limit * float(moment.abs().max()) / moment.double().abs().clamp(min=1e-300)
            room += 2 * change * part.clamp(max=1.0)
        return room


def _beyond(found: Tensor, expected: Tensor, allowed: Tensor) -> float:
    """The largest difference, in multiples of the allowed one."""
    if found.shape != expected.shape or not torch.isfinite(found).all():
        return float("inf")
    apart = (found.double() - expected.double()).abs()
    return float((apart / allowed.clamp(min=1e-300)).max()) if apart.numel() else 0.0


def of_its_own(config: RunConfig) -> str:
    """Why a strategy with these settings is another algorithm than one machine's; empty if it claims to equal it."""
    sync = config.sync
    if isinstance(sync, LocalConfig):
        return f"local averages weights after {sync.every} steps, which is an algorithm of its own"
    if isinstance(sync, Custom) and not is_exact(sync):
        return "the strategy declares is_exact = False: it is an algorithm of its own"
    if any(each.codec != "none" for each in compressions(config.exchange)):
        return "the exchange sends codes of the gradients, which lose a part of them"
    if config.exchange.name.startswith("robust"):
        return "a robust rule is no sum of the gradients"
    return ""


def compare_strategy(config: RunConfig, single: RunConfig) -> Outcome:
    """Train by a strategy on threads, and on one machine beside its records."""
    if isinstance(config.sync, ServerConfig) or config.strategy == "rpc":
        raise ConfigError(
            f"{config.strategy} keeps the model with processes of their own, whose state after a step is not compared",
            "`shoal compare` compares its weights after one step.",
        )
    outcome = Outcome(config.launch.workers)

    def work(group: Group) -> Records:
        made: list[Recording] = []

        def hooks(run: Run) -> list[Hook]:
            made.append(Recording(run))
            return [*made]

        worker.run(config, Silent(), group, hooks=hooks)
        return made[0].records

    ranks = run_threads(config.launch.workers, work)

    def beside(run: Run) -> Sequence[Hook]:
        return [Comparing(run, config, ranks, outcome)]

    with suppress(Enough):
        worker.run(single, Silent(), hooks=beside)
    return outcome
