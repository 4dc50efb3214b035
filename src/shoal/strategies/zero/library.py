"""`shoal.zero`: optimizer state, gradients and parameters divided among the workers, in a training loop of your own."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Mebibytes, Number
from shoal.errors import ConfigError
from shoal.strategies.buckets.gradient_slots import Factor, factor_of
from shoal.strategies.buckets.unused import Unused
from shoal.strategies.gradient_engine import torch_on_final
from shoal.strategies.library.backward_pass import hook_tensors
from shoal.strategies.library.divided_training import DividedTraining
from shoal.strategies.library.set_up import check_threads, total_samples
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.replicas.sync_batchnorm import give_group
from shoal.strategies.update import MakeKeeper
from shoal.strategies.zero.meta import Part
from shoal.strategies.zero.offload import OffloadTo
from shoal.strategies.zero.offload import offload as offloading
from shoal.strategies.zero.shards import ShardOptions, Shards
from shoal.strategies.zero.units import UnitOf
from shoal.strategies.zero.values import Unfilled, unfilled


@checks_arguments
def zero(
    model: nn.Module,
    make_optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer] | None = None,
    stage: int = 3,
    group: Group | None = None,
    *,
    unit_mib: Mebibytes = 8.0,
    unit_of: UnitOf | None = None,
    unused: Unused = "refuse",
    offload: OffloadTo = "none",
    offload_dir: str = "",
    seed: int | None = None,
    weights: str | Path | None = None,
    device: str | torch.device = "cpu",
) -> "ShardedModel":
    """Divide a model's training among the workers: optimizer state (stage 1), gradients (2), parameters (3).

    ::

        sharded = shoal.zero(model, lambda params: torch.optim.AdamW(params, lr=1e-3), stage=3)
        for inputs, labels in loader:                           # this worker's samples
            F.cross_entropy(model(inputs), labels).backward()
            sharded.step()                                      # the same update for all workers

    `make_optimizer` is given this worker's slices of the parameters, flat tensors, and must update each element on its
    own, as SGD and Adam do. It is also given the whole parameters once, and slices are put into their parameter groups.
    `optimizer.step()` of the result is its `step()`, and `optimizer.param_groups` list the model's parameters.

    Without `make_optimizer`, make an optimizer from `model.parameters()` afterwards: from its first step it updates
    this worker's slices.

    `unit_mib` is the size of units: parameters that are gathered and reduced together; `unit_of(name)` cuts the
    model otherwise: parameters with the same value are a unit. `unused="zero"` allows parameters without a
    gradient. `offload="memory"` keeps optimizer state in the host's memory (for a GPU), "file" in a file of
    `offload_dir` that has no name and ends with the process; `make_optimizer` is then called once more, with
    tensors of one element. `group` is by default as for `shoal.DistributedDataParallel`. A collective.

    A model on the meta device gets its values on `device`, one module at a time, so that no worker holds the whole:
    those of a `seed` (`zero.meta.Draw`), the same as on one machine, or the `weights` of a safetensors file.
    """
    if stage not in (1, 2, 3):
        raise ConfigError(f"stage must be 1, 2 or 3, not {stage!r}")
    if make_optimizer is None and offload != "none":
        raise ConfigError(
            f"offload={offload!r} needs make_optimizer: the optimizer's state is in other memory from the beginning",
            "Pass lambda params: torch.optim.AdamW(params, lr=1e-3).",
        )
    keeper = offloading(offload, offload_dir)
    options = ShardOptions(stage, unit_mib, unit_of, unused, early=stage > 1)
    return ShardedModel(model, make_optimizer, group, options, keeper, unfilled(model, seed, weights, device))


@final
class ShardedModel(DividedTraining):
    """What `shoal.zero` returns: a model whose training is divided among the workers.

    The model stays the one you passed. In stage 3 its parameters are one copy that all workers of a machine map;
    elsewhere they are gathered while a module runs, and show NaN otherwise: read them with `state_dict()`.

    Gradients are averaged over the workers. Inside `with sharded.batch(num_samples=n)` they are weighted by the
    workers' numbers of samples: exact for uneven shares, if each loss is a mean. In stages 2 and 3 every backward pass
    is summed over the workers when it ends, so all run equally many; their sums add up until `step()`. In stage 1
    gradients add up on each worker, and are summed when the program looks at one, or in `step()`. `param.grad` is a
    `DividedGradient`: `torch.nn.utils.clip_grad_norm_`, `clip_grad_value_`, `GradScaler` and norms for a log do what
    they do on one machine, if all workers call them. `zero_grad()`, and the optimizer's and the model's, drop
    gradients.
    """

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer] | None,
        group: Group | None,
        options: ShardOptions,
        keeper: MakeKeeper | None,
        no_values: Unfilled | None,
    ) -> None:
        names = () if no_values is None else no_values.tensors
        how = "call shoal.zero with a new model"
        super().__init__(model, make_optimizer, group, check_threads, how, names)
        if no_values is not None:
            no_values.check_same_seed(self.group)
        self.stage = options.stage
        give_group(model, self.group, lambda: self._weight)
        self._weight = 1 / self.group.size
        self._num_passes = 0
        self._shards = Shards(self.group, self._layout, torch_on_final, options)
        if no_values is not None:
            self._fill(no_values)
        if not self._shards.is_gathered:
            self._set_up.fix_memory(self._trained)
        self._divide(self._shards.slices, keeper)
        self.group.barrier().wait()  # all have memory for their state, or none begins
        model.register_forward_hook(self._watch)
        self._shards.gradients.restart()

    @torch.no_grad()
    def _fill(self, no_values: Unfilled) -> None:
        """Give the tensors values: of each, what this worker has of it."""
        whole = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

        def keep(name: str, part: Part) -> None:
            self.group.beat()
            if name in self._trained:
                self._shards.fill(name, part)
            else:
                whole[name].copy_(part(0, whole[name].numel()).view(whole[name].shape))

        no_values.source(keep)

    # Backward passes.

    def _watch(self, module: nn.Module, args: Any, output: Any) -> None:
        """Backward through the model's outputs is a pass, whatever passes run inside it (checkpoints)."""
        del module, args
        if torch.is_grad_enabled():
            hook_tensors(output, lambda gradient: self._begin_pass(outermost=True))

    def _begin_pass(self, outermost: bool = False) -> None:
        super()._begin_pass(outermost)
        if self.stage > 1 and not self._shards.gradients.is_running:
            self._shards.gradients.begin(self._factor)

    def _end_pass(self) -> None:
        if self._shards.gradients.is_running:
            self._shards.end_pass()
            self._num_passes += 1
        self._shown.show(has_sums=self._num_passes > 0)

    def _hide(self) -> list[str]:
        dropped = super()._hide()
        self._shards.gradients.present.difference_update(dropped)
        return dropped

    def _abandon_pass(self) -> None:
        self._shown.drop()
        self._shards.gradients.abandon()
        self._shards.release()
        self._reached.clear()
        self._num_passes = 0

    @property
    def _factor(self) -> Factor | None:
        return None if self._weight == 1 else factor_of(self._weight)

    @contextmanager
    @checks_arguments
    def batch(self, num_samples: Number) -> Generator[None]:
        """Around the passes of one step: the losses inside add up to a mean over `num_samples` samples of this worker.

        All workers enter it together; it makes one small all-reduce. A worker without samples runs no pass if the
        others run one; where parameters are gathered, it runs the model on an empty batch.
        """
        of_all = total_samples(self.group, num_samples)
        before, passes = self._weight, self._num_passes
        self._weight = num_samples / of_all
        try:
            yield
            if self.stage == 1:
                self._sum()
            elif self._num_passes == passes:
                self._take_part(num_samples)
        finally:
            self._weight = before

    def _take_part(self, num_samples: int) -> None:
        """Take part in the others' pass with zeros."""
        if num_samples or self._shards.is_gathered:
            raise ConfigError(
                f"batch(num_samples={num_samples}) ended without a backward pass, for which the other workers wait",
                "Call backward() inside it. Without samples, run the model on an empty batch: model(inputs[:0]).",
            )
        self._sum()

    def _sum(self) -> None:
        """Sum all gradients that are here over the workers."""
        self._set_up.check()
        self._hide()
        self._shards.gradients.begin(self._factor)
        self._end_pass()

    # The update.

    @torch.no_grad()
    def step(self, clip_norm: float | None = None) -> Tensor | None:
        """Update the weights, after clipping the gradients to a common norm if one is given; returns their norm then.

        A collective: every worker calls it after its last backward pass of a step.
        """
        self._set_up.check()
        shards = self._shards
        if self.stage == 1 and (self._shown.has_local or not self._num_passes):
            self._sum()
        self._hide()
        if not self._num_passes:
            raise ConfigError("step() was called without a backward pass before it")
        if self._buffers is not None:
            self._buffers.update()
        shards.check_unused(bool(shards.gradients.present), self._reached)
        self.group.barrier().wait()  # no worker reads weights any more
        norm = self._update_slices(clip_norm)
        shards.publish()
        self.zero_grad()
        return norm

    def zero_grad(self) -> None:
        """Drop the gradients of all passes since the last step. `step` does so, too."""
        super().zero_grad()
        self._num_passes = 0
        self._shards.gradients.restart()
        for param in self.model.parameters():
            param.grad = None

    # State.

    def pieces(self) -> list[Piece]:
        """What this worker holds: `model.<name>` and `optim.<name>.<key>`, each with its place in the whole."""
        optimizer = [] if self._of_slices is None else self._of_slices.pieces()
        return self._shards.pieces() + optimizer

    def state_dict(self) -> dict[str, Tensor]:
        """The whole state on rank 0, on the host, and nothing on the others: `model.<name>`, `optim.<name>.<key>`.

        A collective. `WholeTensors(sharded.pieces(), group)` gives the same one tensor at a time.
        """
        return {name: tensor.clone() for name, tensor in WholeTensors(self.pieces(), self.group, prefix="")}

    def model_state_dict(self) -> dict[str, Tensor]:
        """The model's state on rank 0, on the host, and nothing on the others, under the names of `model.state_dict()`.

        It is gathered one tensor at a time; tied weights are one tensor under several names. A collective::

            weights = sharded.model_state_dict()
            if group.rank == 0:
                model.save_pretrained(folder, state_dict=weights)       # a model of transformers
        """
        first: dict[int, str] = {}
        held = self.model.state_dict(keep_vars=True)
        sources = {name: first.setdefault(id(tensor), name) for name, tensor in held.items()}
        gathered = {f"model.{name}" for name in first.values()}
        pieces = [piece for piece in self._shards.pieces() if piece.name in gathered]
        wholes = {name: tensor.clone() for name, tensor in WholeTensors(pieces, self.group)}
        return {name: wholes[f"model.{source}"] for name, source in sources.items()} if wholes else {}

    def load_state_dict(
        self, saved: Mapping[str, Tensor], optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Load this worker's part of a whole state, saved with any stage and number of workers. A collective.

        Pass the optimizer if it was made from `model.parameters()` and has not stepped yet.
        """
        if optimizer is not None:
            self._adopt(optimizer)
        has_optimizer = any(name.startswith("optim.") for name in saved)
        update = self._update if has_optimizer else self._of_slices
        self._shards.release()
        self._shards.load(saved)
        if update is not None:
            with self._with_slices():
                update.load(saved)
