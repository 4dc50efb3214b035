"""The numbers in the formulas, from a run's settings and the model that a worker computes."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from shoal import optim
from shoal.comm.shared_memory.arena import NUM_SLOTS, SLOT_BYTES
from shoal.config.checks import stand_in
from shoal.config.schema import RunConfig
from shoal.config.sections.data import GlobalConfig, OwnData
from shoal.config.sections.optimizer import AdamConfig, AdamWConfig, SgdConfig
from shoal.config.sections.train import StopConfig
from shoal.config.sections.values import Custom
from shoal.data.division.steps import ByLeaves
from shoal.memory.process import memory_id
from shoal.optim.compact.formats import TABLE_BYTES
from shoal.optim.compact.optimizer import CHUNK_ON_GPU, CHUNK_PER_THREAD, SMALL, encoded_bytes
from shoal.optim.over import state_bytes
from shoal.optim.rows import BYTES_PER_THREAD
from shoal.strategies.buckets.gradient_slots import covered
from shoal.strategies.buckets.plan import plan
from shoal.strategies.buckets.reducer import MOVED_BYTES
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.gradient_engine import AUTOCAST
from shoal.strategies.local.local import averaging_every_step
from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.memory import Sizes
from shoal.strategies.onecopy.settings import OneCopyConfig
from shoal.strategies.replicas.step_in_backward import bucket_bytes
from shoal.strategies.zero.settings import ZeroConfig
from shoal.strategies.zero.zero import with_units
from shoal.training.memory.prepare import storage_of


def small_run(config: RunConfig) -> RunConfig:
    """The same run on a few generated samples of the same shape, one sample of each worker and part in a step.

    The data set is no part of the formulas, and need not be on this machine.
    """
    train = config.train
    if config.optimizer.name != "gd":
        train = replace(train, batch_size=samples_per_step(config))
    if accumulates(config):
        train = replace(train, micro_batch=1)
    sync = averaging_every_step(config.sync) if isinstance(config.sync, LocalConfig) else config.sync
    small = on_generated_data(config, max(64, 4 * samples_per_step(config)))
    return replace(small, train=replace(train, metrics=()), sync=sync)


def on_generated_data(config: RunConfig, samples: int) -> RunConfig:
    """The same run on generated samples of the same shape, without evaluations. A user's own data are loaded."""
    data = config.data
    if not isinstance(data, OwnData):
        data = replace(stand_in(data), samples=samples, validation=0.0)
    train = replace(config.train, metrics=())
    return replace(config, data=data, train=train, stop=StopConfig(), partition=GlobalConfig())


def samples_per_step(config: RunConfig) -> int:
    """One sample for each worker of the data axis; in a pipeline one for each micro-batch, and one for each leaf.

    Two for a worker that adds up parts, however many they are.
    """
    axes = config.axes
    if leaves := leaves_of(config):
        return axes.get("data", 1) * leaves
    if config.sync is not None and config.sync.name == "dp":
        return config.launch.workers
    if axes.get("pipeline", 1) > 1:
        return axes.get("data", 1) * config.pipeline.microbatches
    return axes.get("data", 1) * (2 if accumulates(config) else 1)


def leaves_of(config: RunConfig) -> int:
    """Leaves of the worker that has most of them, with `--reduction invariant`; else 0."""
    batch_size = config.train.batch_size
    if config.train.reduction != "invariant" or not isinstance(batch_size, int):
        return 0
    size = config.axes.get("data", 1)
    leaves = -(-batch_size // config.train.micro_batch)
    return min(leaves, ByLeaves(leaves, config.seed, size, 1).first_leaf(0, leaves, 1))


def sizes_of(
    config: RunConfig, model: nn.Module, params: Mapping[str, Tensor], is_gpu: bool, maps_memory: bool
) -> Sizes:
    """The numbers for a worker that computes this model and updates these parameters of it."""
    assert config.sync is not None
    size = config.axes.get("data", 1)
    trained = [_as_stored(config, param) for param in params.values()]
    # Our own engines have tensors of their own, in the memory of the model's parameters.
    known = {id(param) for param in params.values()} | {memory_id(param) for param in params.values()}
    frozen = (param for param in model.parameters() if not {id(param), memory_id(param)} & known)
    fixed = [*frozen, *model.buffers()]
    largest = max((param.nbytes for param in trained), default=0)
    sizes = Sizes(
        num_params=sum(param.numel() for param in trained),
        workers=config.launch.workers if config.sync.name == "dp" else size,
        weights=sum(param.nbytes for param in trained),
        state=_state_bytes(config, trained),
        updated_in_backward=_updated_in_backward(config, trained, size),
        added=largest if accumulates(config) else 0,
        fixed=sum(tensor.nbytes for tensor in fixed),
        largest=_fresh(config, model, params, is_gpu),
        maps_memory=maps_memory,
        temporaries=_temporaries(config, largest, is_gpu),
        slots=NUM_SLOTS * SLOT_BYTES if maps_memory else 0,
        leaves=leaves_of(config),
        keeps_gradients=config.axes.get("pipeline", 1) > 1,
    )
    if isinstance(config.sync, LocalConfig):
        return replace(sizes, averages_state=config.sync.averages_moments)
    if not isinstance(config.sync, ZeroConfig):
        return sizes
    return with_units(config.sync, sizes, model, params, largest if is_gpu else 0)


def may_use_gpu(config: RunConfig) -> bool:
    """Whether the run's workers may be on a GPU of this machine."""
    return config.device != "cpu" and torch.cuda.is_available()


def _as_stored(config: RunConfig, param: Tensor) -> Tensor:
    """A parameter of the dtype that it is stored in."""
    in_bf16 = config.memory.parameters == "bf16" and param.numel() >= SMALL and param.dtype == torch.float32
    return torch.empty(param.shape, dtype=torch.bfloat16, device="meta") if in_bf16 else param


def _state_bytes(config: RunConfig, params: list[Tensor]) -> int:
    """Optimizer state; where parameters or state are stored in fewer bits, as `Compact` stores it."""
    storage = storage_of(config)
    as_floats = [torch.empty(param.shape, device="meta") if storage else param for param in params]
    in_float32 = state_bytes(lambda probes: optim.build(config.optimizer, probes), as_floats)
    if storage is None or storage.state_bits == 32:
        return in_float32
    per_element = in_float32 // max(1, 4 * sum(param.numel() for param in params))
    return per_element * sum(encoded_bytes(param.numel()) for param in params)


def _updated_in_backward(config: RunConfig, params: list[Tensor], workers: int) -> int:
    """The largest gradient or, with several workers, the largest bucket of gradients that is updated at once."""
    if not config.memory.step_in_backward:
        return 0
    if workers == 1:
        return max((param.nbytes for param in params), default=0)
    most_bytes = bucket_bytes(config.sync.bucket_mib) if isinstance(config.sync, DdpConfig) else 0
    buckets = plan(params, [*reversed(range(len(params)))], most_bytes, most_bytes)
    return max(bucket.numel * bucket.kind.dtype.itemsize for bucket in buckets)


def _fresh(config: RunConfig, model: nn.Module, params: Mapping[str, Tensor], is_gpu: bool) -> int:
    """Gradients in memory of their own: the largest of those that are moved when they are final, and all that are not.

    Those of large linear layers are computed where they stay.
    """
    sizes = {id(param): _as_stored(config, param).nbytes for param in params.values()}
    if config.engine == "static":
        return sum(sizes.values())  # the compiled graph keeps memory for all of them
    has_slots = isinstance(config.sync, DdpConfig | OneCopyConfig) and config.engine == "torch" and not is_gpu
    computes_there = has_slots and config.precision not in AUTOCAST and not accumulates(config)
    in_slots = {id(layer.weight) for layer in covered(model)} if computes_there else set[int]()
    moved = [each for key, each in sizes.items() if each >= MOVED_BYTES and key not in in_slots]
    return max(moved, default=0) + sum(each for each in sizes.values() if each < MOVED_BYTES)


def accumulates(config: RunConfig) -> bool:
    """Whether gradients are sums over parts or leaves, to which each part's gradient is added."""
    if config.axes.get("pipeline", 1) > 1:
        return leaves_of(config) > 0
    batch_size = config.train.batch_size
    share = -(-batch_size // config.axes.get("data", 1)) if isinstance(batch_size, int) else 0
    return leaves_of(config) > 0 or share > config.train.micro_batch


def _temporaries(config: RunConfig, largest: int, is_gpu: bool) -> int | None:
    """Bytes of temporaries in the optimizer's step: none in fused kernels; ours work on chunks that fit the cache."""
    optimizer = config.optimizer
    if isinstance(optimizer, Custom):
        return None
    if (storage := storage_of(config)) is not None:
        in_8_bits, in_bf16 = storage.state_bits == 8, config.memory.parameters == "bf16"
        chunk = CHUNK_ON_GPU if is_gpu else CHUNK_PER_THREAD * torch.get_num_threads()
        # Of a chunk in float32: a temporary of the rule; two states, and where they are looked up; parameters,
        # gradients and random numbers.
        buffers = 1 + 3 * in_8_bits + 3 * in_bf16
        return buffers * min(4 * chunk, largest * (1 + in_bf16)) + in_8_bits * TABLE_BYTES
    if optimizer.fast:
        return 0
    at_once = largest if is_gpu else min(largest, BYTES_PER_THREAD * torch.get_num_threads())
    if isinstance(optimizer, AdamConfig | AdamWConfig):
        return at_once * (1 + (isinstance(optimizer, AdamConfig) and optimizer.weight_decay > 0))
    if isinstance(optimizer, SgdConfig):
        return at_once * ((optimizer.weight_decay > 0) + optimizer.nesterov)
    return 0
