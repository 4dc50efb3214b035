"""When each fragment is averaged, the averages that are on their way, and the state of both."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from shoal.comm.group import Finished, Group, Work
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.guard import ROW
from shoal.strategies.local.fragment import Fragment, Moments, cut
from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.strategy import Share

NEVER = -1
"""In a checkpoint, stands for the step of an averaging where none is under way."""

FragmentStates = Mapping[Fragment, Mapping[str, Tensor]]
"""Copies of fragments' states: of those whose averages were applied to evaluate or save, and will be undone."""


@dataclass
class Averaging:
    """Fragments whose averages are on their way."""

    step: int
    """The step after which it began."""
    fragments: list[Fragment]
    table: Tensor | None = None
    """The guard's table, which travels with the first fragment, until it is read."""
    table_work: Work = field(default_factory=Finished)

    def wait(self) -> None:
        """Wait until everything has arrived."""
        for fragment in self.fragments:
            fragment.wait()
        self.table_work.wait()
        self.table_work = Finished()
        if self.table is not None and self.fragments[0].piggyback is not None:
            self.table.view(-1).copy_(self.fragments[0].piggyback)


@final
class Averagings:
    """The fragments of a model, of which each is averaged every `every` steps, and the averages under way.

    Of P fragments, fragment p is due after the steps s with (s + p·k/P) mod k = 0. Its average is applied `overlap`
    steps later. Both follow from the number of steps alone, never from when a message arrives: runs repeat.
    """

    def __init__(
        self,
        params: Mapping[str, Tensor],
        config: LocalConfig,
        group: Group,
        exchange: Exchange,
        exact: Exchange | None = None,
    ) -> None:
        """`exact` makes the model that is evaluated and saved, if `exchange` encodes what it sends."""
        self._params, self._config, self._group, self._exchange = params, config, group, exchange
        self._exact = exact or exchange
        ranges = cut(params, config.fragments)
        # The guard's table can piggyback on a sum, but not on another rule, nor on numbers that are too coarse for it.
        fits = exchange.is_sum and next(iter(params.values())).element_size() >= 4
        self.fragments = [
            Fragment(params, stretches, index * config.every // len(ranges), num_piggyback)
            for index, stretches in enumerate(ranges)
            for num_piggyback in [ROW * group.size if fits and index == 0 else 0]
        ]
        self.step = 0
        """Steps since training began, or continued with another number of workers or other settings."""
        self.num_samples = [0, 0]
        """Samples of all these steps: this worker's, and all workers'."""
        self.under_way: list[Averaging] = []

    def count(self, share: Share) -> None:
        """Count a step and its samples."""
        self.step += 1
        for counts in (self.num_samples, *(fragment.num_samples for fragment in self.fragments)):
            counts[0] += share.num_samples
            counts[1] += share.num_samples_global

    @property
    def due(self) -> list[Fragment]:
        """The fragments whose averaging begins now."""
        return [each for each in self.fragments if (self.step + each.offset) % self._config.every == 0]

    def begin(self, moments: Moments, table: Tensor | None) -> None:
        """Begin to average the fragments that are due; the table is summed with them."""
        averaging = Averaging(self.step, self.due, table)
        for fragment in averaging.fragments:
            fragment.start(self._group, self._exchange, moments, table)
            fragment.num_samples = [0, 0]
        if table is not None and averaging.fragments[0].piggyback is None:
            averaging.table_work = self._group.all_reduce(table)
        self.under_way.append(averaging)

    def advance(self) -> None:
        """Move what is under way forward: some groups start to send when they are asked, and the members have come."""
        for averaging in self.under_way:
            for fragment in averaging.fragments:
                fragment.work.done()
            averaging.table_work.done()

    def to_apply(self) -> Iterator[Averaging]:
        """The averagings to apply now, oldest first; waits until each has arrived."""
        while self.under_way and self.under_way[0].step <= self.step - self._config.overlap:
            averaging = self.under_way.pop(0)
            averaging.wait()
            yield averaging

    def apply(self, averaging: Averaging) -> None:
        """Make the outer step of its fragments."""
        for fragment in averaging.fragments:
            fragment.outer_step(self._config.outer_lr, self._config.outer_momentum)

    def become_mean(self, moments: Moments) -> None:
        """Set all weights, and these moments, to the workers' means, without an outer step."""
        for fragment in self.fragments:
            fragment.start(self._group, self._exact, moments, None)
        for fragment in self.fragments:
            fragment.become_mean()

    # Checkpoints.

    def pieces(self, kept: FragmentStates) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What is the same on all workers, and what belongs to this one; `kept` states replace the present ones."""
        began = {fragment: each.step for each in self.under_way for fragment in each.fragments}
        states = {fragment: fragment.state(fragment in began) for fragment in self.fragments} | dict(kept)

        def by_parameter(key: str) -> dict[str, Tensor]:
            """One tensor for each parameter, zero where there is none."""
            params = self._params.items()
            wholes = {name: torch.zeros(param.shape, dtype=param.dtype) for name, param in params}
            for fragment, state in states.items():
                for stretch, part in fragment.by_stretch(state[key]) if key in state else ():
                    stretch.of(wholes[stretch.name]).copy_(part)
            return {f"{key}.{name}": whole for name, whole in wholes.items()}

        common = {
            "plan": self._plan(),
            "step": torch.tensor([self.step, *(began.get(each, NEVER) for each in self.fragments)]),
            **by_parameter("anchor"),
            **by_parameter("momentum"),
        }
        mine = {
            "num_samples": torch.tensor([self.num_samples, *(each.num_samples for each in self.fragments)])
        }
        if began:
            return common | by_parameter("difference"), mine | by_parameter("snapshot")
        return common, mine

    def restart(self, common: Mapping[str, Tensor]) -> bool:
        """Start again from the present weights, with the saved momentum of the outer step if there is one.

        Returns whether the saved run had as many workers and these settings, so that it can be continued exactly.
        """
        self.step, self.num_samples, self.under_way = 0, [0, 0], []
        for fragment in self.fragments:
            fragment.restart()
        if "plan" not in common:
            return False
        _load({each: each.momentum for each in self.fragments}, common, "momentum")
        return torch.equal(common["plan"], self._plan())

    def load(self, common: Mapping[str, Tensor], mine: Mapping[str, Tensor]) -> None:
        """Load everything that `pieces` returned. A collective."""
        _load({each: each.anchor for each in self.fragments}, common, "anchor")
        self.num_samples, *counts = mine["num_samples"].tolist()
        for fragment, count in zip(self.fragments, counts, strict=True):
            fragment.num_samples = count
        self.step, *steps = common["step"].tolist()
        began = dict(zip(self.fragments, steps, strict=True))
        for step in sorted(set(steps) - {NEVER}):
            fragments = [fragment for fragment in self.fragments if began[fragment] == step]
            self.under_way.append(Averaging(step, fragments))
            for fragment in fragments:
                fragment.prepare(self._group)
            _load({each: each.snapshot for each in fragments}, mine, "snapshot")
            _load({each: each.mean_difference for each in fragments}, common, "difference")

    def _plan(self) -> Tensor:
        config = self._config
        return torch.tensor([self._group.size, config.every, config.fragments, config.overlap])


def _load(flats: Mapping[Fragment, Tensor], saved: Mapping[str, Tensor], key: str) -> None:
    """Load flat tensors of fragments from `<key>.<parameter>`."""
    for fragment, flat in flats.items():
        for stretch, part in fragment.by_stretch(flat):
            part.copy_(stretch.of(saved[f"{key}.{stretch.name}"].contiguous()))
