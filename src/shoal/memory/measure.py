"""Measures the memory of every worker in a few steps of training, next to the formulas.

It measures the third step as it is in any run, and a fourth one in which the C library keeps nothing of what was
freed: then all memory is in use.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from shoal.comm.group import Group
from shoal.comm.traced import traced
from shoal.config.checks import GIB, LOOPBACK, check_memory, check_resources, check_world
from shoal.config.mesh import check_divided, layout_of
from shoal.config.schema import RunConfig
from shoal.config.sections.values import Custom
from shoal.data.dataset import Batch
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal.memory import process
from shoal.memory.formulas import FEEDBACK, FORMULAS, MEMORIES, components, exchange_state, total
from shoal.memory.process import MemoryMapping, MemoryWatch, StepMemory
from shoal.memory.sized_pass import activation_bytes, pass_peak, sized_model, without_memory
from shoal.memory.sizes import accumulates, may_use_gpu, samples_per_step, sizes_of, small_run
from shoal.memory.workers import as_worker, in_workers
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.gradient_engine import AUTOCAST
from shoal.strategies.memory import (
    ACTIVATIONS,
    FLAT,
    GRADIENTS,
    IN_FLIGHT,
    OFFLOADED,
    PARAMETERS,
    SLOTS,
    STATE,
    Component,
    Sizes,
)
from shoal.strategies.settings import DpConfig
from shoal.strategies.strategy import Share
from shoal.strategies.zero.settings import ZeroConfig
from shoal.training.build import build
from shoal.training.memory.checkpointing import checkpoint_blocks, recomputed_blocks
from shoal.training.memory.peak import warm_up
from shoal.training.run import Run

STEPS = 3
"""Steps as in any run; the peak of the last one is measured. Optimizer state exists since the first."""


@dataclass(frozen=True)
class WorkerMemory:
    """One worker's memory: by formula, and as measured."""

    rank: int
    sizes: Sizes
    components: list[Component]
    measured: dict[str, int]
    """Bytes of each component that was counted."""
    total: int
    """Growth from the idle worker to the peak of a step: what is in use."""
    kept: int
    """Freed memory that the C library keeps beyond that."""

    @property
    def formula(self) -> int:
        """Bytes of all components by formula."""
        return total(self.components)

    @property
    def is_complete(self) -> bool:
        """Whether the formula has all components: what is not known in advance is not in its total."""
        return not any(each.counts and each.num_bytes is None for each in self.components)

    @property
    def difference(self) -> float:
        """How much more was measured than the formula gives, as a fraction of it."""
        return self.total / self.formula - 1 if self.formula else 0.0


def check_formula(config: RunConfig) -> None:
    """Refuse what has no formula."""
    check_divided(config.mesh, config.launch.workers)
    assert config.sync is not None
    if config.sync.name not in FORMULAS:
        raise ConfigError(
            f"there is no formula for the memory of strategy {config.strategy}",
            f"There are formulas for the syncs {', '.join(FORMULAS)}.",
        )
    if config.axes.get("pipeline", 1) > 1 and config.pipeline.updates_inside:
        raise ConfigError(
            f"there is no formula for --pipeline.schedule {config.pipeline.schedule}, which keeps several versions of "
            "the weights",
            "Use another schedule.",
        )
    if config.train.reduction == "invariant" and config.train.batch_size == "all":
        raise ConfigError(
            "there is no formula for --reduction invariant with batches of the whole training set, whose size is not "
            "known here",
            "Use --batch-size, and --optimizer sgd instead of gd.",
        )


def _check_can_measure(config: RunConfig) -> None:
    """Refuse what cannot be measured, or has no place in the memory of this machine."""
    check_formula(config)
    workers = config.launch.workers
    process.refuse_threads(config)
    check_resources(config, workers)
    check_world(config, workers, LOOPBACK)
    if not may_use_gpu(config):
        process.check_can_measure()
        if not _divides_model(config):
            needed = by_formula(config).formula
            details = f"{needed / GIB:.3g} GiB by formula"
            check_memory(workers, needed, details, config.launch.launcher)


def _divides_model(config: RunConfig) -> bool:
    return layout_of(config.axes) != "whole"


def by_formula(config: RunConfig, samples: int = 1) -> WorkerMemory:
    """The memory of a worker by formula alone: nothing of the model's size is allocated.

    `samples` go through the model at once.
    """
    check_formula(config)
    if _divides_model(config):
        raise ConfigError(
            f"strategy {config.strategy} divides the model when it is built, so --formula-only knows no worker's part",
            "Leave --formula-only out.",
        )
    if isinstance(config.model, Custom):  # it is built as usual
        check_resources(config, 1)
    small = small_run(config)
    dataset = load(small.data)
    model = without_memory(small, dataset)
    params: dict[str, Tensor] = {
        name: param for name, param in model.named_parameters() if param.requires_grad
    }
    launch = config.launch
    maps_memory = config.device in ("auto", "cpu") and launch.group in ("auto", "shm") and not launch.link
    batch = dataset.batch(dataset.train, torch.arange(samples) % len(dataset.train))
    return _predicted(small, 0, model, params, batch, config.device == "cuda", maps_memory)


def measure(config: RunConfig) -> list[WorkerMemory]:
    """The memory of every worker, in rank order."""
    _check_can_measure(config)
    return [_from_data(**found) for found in in_workers(__file__, small_run(config))]


def _from_data(sizes: dict[str, Any], components: list[dict[str, Any]], **others: Any) -> WorkerMemory:
    return WorkerMemory(sizes=Sizes(**sizes), components=[Component(**each) for each in components], **others)


# In a worker.


def _measured(config: RunConfig, device: torch.device, group: Group) -> dict[str, Any]:
    """The data of this worker's `WorkerMemory`."""
    watch = MemoryWatch(device)
    warm_up(device)
    group.barrier().wait()
    is_gpu = device.type == "cuda"
    if not is_gpu:
        process.check_can_measure()
    idle, idle_places = watch.now(), {} if is_gpu else process.shared_mappings()
    run = build(config, device, traced(group), clock=watch)
    for block in recomputed_blocks(run.model):
        block.watch = watch
    for _ in range(STEPS - 1):
        _step(run, group)
    with watch.watching(run.params.values()) as seen:
        _step(run, group)
    peak = seen.peak
    if not is_gpu:
        with watch.watching(run.params.values(), only_in_use=True) as seen:
            _step(run, group)
    batch = run.data.batch(run.data.train, torch.tensor([0]))
    found = _predicted(config, group.rank, run.model, run.params, batch, is_gpu, group.maps_memory)
    counted = _counted(run, seen, idle_places, is_gpu)
    return asdict(replace(found, measured=counted, total=seen.peak - idle, kept=max(0, peak - seen.peak)))


def _step(run: Run, group: Group) -> None:
    """One step with a sample of each worker; all workers begin together."""
    strategy = run.strategy
    count = samples_per_step(run.config)
    each = count // strategy.data_size
    mine = torch.arange(strategy.data_rank * each, (strategy.data_rank + 1) * each)
    parts = mine.split(1 if accumulates(run.config) else len(mine))
    batches = tuple(run.data.training_batch(part, run.config.seed, 0) for part in parts)
    group.barrier().wait()
    result = strategy.step(Share(batches, count, len(mine)), run.lr(0))
    del result
    group.barrier().wait()


def _predicted(
    config: RunConfig,
    rank: int,
    model: nn.Module,
    params: dict[str, Tensor],
    batch: Batch,
    is_gpu: bool,
    maps_memory: bool,
) -> WorkerMemory:
    assert config.sync is not None
    sizes = sizes_of(config, model, params, is_gpu, maps_memory)
    # Which operations a GPU computes in bfloat16 is not known here.
    is_known = config.engine == "torch" and not (is_gpu and config.precision in AUTOCAST)
    if is_known and not _divides_model(config):
        sizes = _with_activations(config, sizes, batch)
    found = [*components(config.sync.name, sizes), *exchange_state(config, params)]
    return WorkerMemory(rank, sizes, found, {}, 0, 0)


def _with_activations(config: RunConfig, sizes: Sizes, batch: Batch) -> Sizes:
    """The numbers, with the activations of a pass of a whole model."""
    dataset, is_offloaded = load(config.data), config.memory.offload != "none"
    with sized_model(config, dataset) as (model, autocast):
        checkpoint_blocks(model, config.memory.checkpoint)
        activations = activation_bytes(model, config.loss, batch, autocast)
        peak = pass_peak(model, config.loss, batch, is_offloaded, autocast)
    in_memory = 0 if is_offloaded else activations
    working = None if peak is None or in_memory is None else max(0, peak - in_memory)
    return replace(sizes, activations=activations, offloads_activations=is_offloaded, working=working)


def _counted(
    run: Run, seen: StepMemory, idle_places: dict[int, MemoryMapping], is_gpu: bool
) -> dict[str, int]:
    """The bytes of the tensors that were there, by component; memory that workers share as the system divides it."""
    shared = {} if is_gpu else process.shared_mappings()
    taken: set[int] = set()

    def count(storages: dict[int, int]) -> int:
        amount = 0
        for address, num_bytes in storages.items():
            place = next((each for each in shared.values() if each.start <= address < each.stop), None)
            if place is None:
                amount += num_bytes
            elif place.start not in taken:
                taken.add(place.start)
                amount += place.pss
        return amount

    held = [piece.tensor for piece in run.strategy.pieces() if piece.name.startswith("model.")]
    counted = {PARAMETERS: count(process.storages_of(held))}
    gradients = seen.gradients + sum(shared[place].pss for place in seen.gradient_places - taken)
    taken |= seen.gradient_places
    # On a CPU the optimizer works in the offloaded memory itself; on a GPU it has the state of a slice.
    sync = run.config.sync
    is_mapped = isinstance(sync, ZeroConfig) and sync.offload != "none" and not is_gpu
    state = OFFLOADED if is_mapped else STATE
    counted |= {GRADIENTS: gradients, state: count(seen.state), ACTIVATIONS: seen.activations}
    counted |= counted_state(run.exchange, count)
    if not is_gpu and shared:
        counted[SLOTS] = sum(
            shared[start].pss - before.pss for start, before in idle_places.items() if start in shared
        )
        in_flight = sum(shared[place].pss for place in set(shared) - taken - set(idle_places))
        name = FLAT if isinstance(run.config.sync, DpConfig) else IN_FLIGHT
        counted |= {name: in_flight} if in_flight else {}
    return counted


def counted_state(exchange: Exchange, count: Callable[[dict[int, int]], int]) -> dict[str, int]:
    """The bytes of the state that an exchange holds, by component; `count` adds up tensors' memory."""
    if not isinstance(exchange, Compressed):
        return {}
    residuals, memories = exchange.held()
    kinds = {FEEDBACK: residuals, MEMORIES: memories}
    return {name: count(process.storages_of(tensors)) for name, tensors in kinds.items() if tensors}


if __name__ == "__main__":
    as_worker(_measured)
