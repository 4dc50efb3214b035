"""Builds everything that a run needs from its config. Errors are raised here, before anything is written."""

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from shoal import models, optim
from shoal.comm.alone import alone
from shoal.comm.group import BUSY_S, Group
from shoal.comm.mesh import Mesh
from shoal.comm.traced import Traced
from shoal.comm.tree_sums import tree_summed
from shoal.config.checks import check_resources
from shoal.config.features import COUNTED, NESTED
from shoal.config.schema import RunConfig
from shoal.config.sections.data import OwnData
from shoal.config.sections.exchange import RobustConfig, check_real, compressions
from shoal.config.sections.prune import WeightPruneConfig
from shoal.config.sections.values import Custom
from shoal.data.dataset import Batch, DataSet
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal.events.folder import RunFolder
from shoal.events.spans import Clock, SpanRecorder
from shoal.models.metrics import Measure, measures_for
from shoal.nested import Nested, described, mapped
from shoal.prune.masks import WeightMasks
from shoal.strategies.exchange.build import build_exchange
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.exchange.kept import KeptOnly
from shoal.strategies.guard import Guard, exact_total
from shoal.strategies.layout.layout import Layout
from shoal.strategies.leaf_sums import total_of_rows
from shoal.strategies.loss_scale import LossScale
from shoal.strategies.not_finite import Remedies
from shoal.strategies.pieces.freed_memory import return_large_memory_at_once
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.replicas.user_sync import build_user_sync
from shoal.strategies.strategy import Strategy, TrainingClock
from shoal.strategies.update import Update
from shoal.training.evaluation import BestEpoch
from shoal.training.memory.prepare import storage_of, store_parameters
from shoal.training.progress import epoch_of, total_steps
from shoal.training.prune.pruning import prepare
from shoal.training.run import Run
from shoal.training.setup.build_layout import build_layout, check_stages, with_cut
from shoal.training.setup.data import check_same_data, divisions
from shoal.training.setup.device import clock_of, take_device
from shoal.training.setup.schedule import learning_rates
from shoal.training.weights import check_savable

SYNCS: dict[str, str] = {
    "none": "shoal.strategies.replicas.sync:no_sync",
    "naive": "shoal.strategies.naive:Naive",
    "ddp": "shoal.strategies.ddp.ddp:Ddp",
    "dp": "shoal.strategies.dp:Dp",
    "rpc": "shoal.strategies.rpc.rpc:Rpc",
    "onecopy": "shoal.strategies.onecopy.onecopy:OneCopySync",
    "zero": "shoal.strategies.zero.zero:Zero",
    "local": "shoal.strategies.local.local:LocalSync",
    "server": "shoal.strategies.server.server:server_sync",
}
"""What builds each sync from `SyncParts` and its own settings. A run imports its own alone."""


COUPLED = (
    "--train.coupled: the loss of a sample depends on the others that its worker computes with it, so results "
    "depend on the number of workers and on --micro-batch"
)


def build(
    config: RunConfig,
    device: torch.device,
    group: Traced,
    clock: Clock | None = None,
    resumed: RunFolder | None = None,
) -> Run:
    """A run with its data, model, optimizer and strategy, on its device; `group` has all workers of the run.

    Spans are measured with `clock`, by default the device's. A resumed run has the widths of its folder's network.
    """
    if config.memory.return_freed:
        return_large_memory_at_once()
    group.beat(BUSY_S)  # reading a data set may take long while other workers wait
    dataset = load(config.data)
    identities = check_same_data(group, dataset) if isinstance(config.data, OwnData) else ()
    dataset = dataset.to(device)
    model, counts = build_checked(config, dataset)
    if config.train.coupled and group.rank == 0:
        warnings.warn(COUPLED, stacklevel=2)
    measures = build_measures(config, model, dataset)
    best = BestEpoch.of(config.stop, dataset, measures)
    widths, rewound = prepare(model, config, mapped(Tensor.cpu, few_inputs(dataset)), resumed)
    store_parameters(config, model)
    model.to(device)
    workers = group.size - config.num_servers
    _check_work(config, dataset, model, workers, device)
    span = SpanRecorder(clock or clock_of(device))
    batch_size, epoch_samples = epoch_of(config.train, len(dataset.train))
    steps = total_steps(epoch_samples, batch_size, config.train.epochs, config.train.steps)
    training_clock = TrainingClock(total_steps=steps, span=span)
    mesh, data_axis = _divided(config, group)
    order = check_stages(config, model, few_inputs(dataset))
    config = with_cut(config, mesh, model, few_inputs(dataset), batch_size, order)
    loss_scale = LossScale() if config.precision == "fp16" else None
    layout = build_layout(
        config, mesh, model, few_inputs(dataset), span, training_clock, measures, order, loss_scale, counts
    )
    masks = WeightMasks(layout.params, config.prune) if isinstance(config.prune, WeightPruneConfig) else None
    exchange = build_exchange(config.exchange, config.axes.get("data", 1), training_clock)
    if masks is not None:
        exchange = KeptOnly(exchange, masks)
    world = group if config.num_servers else None
    parts = _sync_parts(config, layout, data_axis, exchange, masks, world, training_clock, loss_scale)
    strategy = _build_sync(config, parts)
    return Run(
        config=config,
        device=device,
        data=dataset,
        identities=identities,
        model=layout.model,
        params=layout.params,
        strategy=strategy,
        group=group,
        workers=workers,
        span=span,
        batch_size=batch_size,
        epoch_samples=epoch_samples,
        total_steps=steps,
        training_clock=training_clock,
        division=divisions(config, dataset, strategy.data_size),
        lr=learning_rates(config.schedule, parts.update.base_lr, steps),
        exchange=exchange,
        widths=widths,
        rewound=rewound,
        masks=masks,
        measures=measures,
        best=best,
        loss_scale=loss_scale,
    )


def _build_sync(config: RunConfig, parts: SyncParts) -> Strategy:
    assert config.sync is not None  # `RunConfig` has filled it in
    if isinstance(config.sync, Custom):
        return build_user_sync(parts, config.sync)
    module, _, name = SYNCS[config.sync.name].partition(":")
    build_sync: Callable[[SyncParts, Any], Strategy] = getattr(import_module(module), name)
    return build_sync(parts, config.sync)


def _sync_parts(
    config: RunConfig,
    layout: Layout,
    data_axis: Group,
    exchange: Exchange,
    masks: WeightMasks | None,
    world: Group | None,
    training_clock: TrainingClock,
    loss_scale: LossScale | None,
) -> SyncParts:
    train, in_backward = config.train, config.memory.step_in_backward
    update = Update(
        layout,
        lambda params: optim.build(config.optimizer, params),
        train.clip_norm,
        masks=masks,
        storage=storage_of(config),
    )
    total = total_of_rows if train.reduction == "invariant" else exact_total
    counted = None if layout.counter is None else layout.take_count
    remedies, sharded = remedies_of(config), layout.sharded_over
    in_step = config.has_unequal_devices
    guard = Guard(
        data_axis, exchange, train.on_nonfinite, sharded, remedies, total, loss_scale, counted, in_step
    )
    return SyncParts(layout, update, data_axis, exchange, guard, world, training_clock, in_backward)


def _divided(config: RunConfig, group: Traced) -> tuple[Mesh, Group]:
    """This worker's place in the grid, and the group along which the data is divided.

    The servers of a parameter server have the last ranks: each has a grid of its own, and they share a group.
    """
    workers = group.size - config.num_servers
    if not config.num_servers:
        peers: Group = group
    else:
        peers = group.split(range(workers) if group.rank < workers else range(workers, group.size))
    if group.rank >= workers:
        mesh, data_axis = Mesh(alone(), {"data": 1}), peers
    else:
        mesh = Mesh(peers, config.axes)
        data_axis = mesh.axis("data") or alone()
    return mesh, tree_summed(data_axis) if config.train.reduction == "invariant" else data_axis


def build_model(config: RunConfig, dataset: DataSet) -> nn.Module:
    """The model with its initial weights, its output checked against the labels and the loss."""
    return build_checked(config, dataset)[0]


def build_checked(config: RunConfig, dataset: DataSet) -> tuple[nn.Module, bool]:
    """The model, and whether the loss counts (`models.check_fit`)."""
    check_resources(config, 1)
    if not isinstance(dataset.train.inputs, Tensor):
        config.check_found(NESTED)
        if not isinstance(config.model, Custom):
            raise ConfigError(
                f"model {config.model.name} takes one tensor, and the inputs of {dataset.name} are "
                f"{described(dataset.train.inputs)}",
                "Give a model of your own: --model package.module:Model.",
            )
    model = models.build(config.model, dataset.input_shape, dataset.outputs, config.seed)
    inputs, labels = (mapped(Tensor.cpu, each) for each in (few_inputs(dataset), dataset.train.labels))
    counts = models.check_fit(model, config.loss, inputs, labels, config.train.coupled)
    if counts:
        config.check_found(COUNTED)
    return model, counts


def build_measures(config: RunConfig, model: nn.Module, dataset: DataSet) -> tuple[Measure, ...]:
    """The metrics of a run, each tried on a few samples; the model must be whole."""
    few = _few(dataset)
    if "accuracy" in config.train.metrics and dataset.train.labels is None:
        raise ConfigError("metric accuracy needs labels, and the samples have none", "Leave it out.")
    return measures_for(config.train.metrics, model, few.inputs, few.labels)


def few_inputs(dataset: DataSet) -> Nested:
    """The inputs of a few samples, to try a model with."""
    return _few(dataset).inputs


def _few(dataset: DataSet) -> Batch:
    few = torch.arange(min(4, len(dataset.train)), device=dataset.train.device)
    return dataset.batch(dataset.train, few)


def _check_work(
    config: RunConfig, dataset: DataSet, model: nn.Module, workers: int, device: torch.device
) -> None:
    """Refuse a model without parameters, fewer samples than workers, and options that device or model cannot take."""
    config.check_device(device.type)
    samples = len(dataset.train)
    if samples < workers:
        raise ConfigError(
            f"{workers:,} workers cannot share {samples:,} samples", f"Use at most {samples:,} workers."
        )
    if not any(param.requires_grad for param in model.parameters()):
        what = "only frozen parameters" if any(True for _ in model.parameters()) else "no parameters"
        raise ConfigError(
            f"model {config.model.name} has {what}: there is nothing to train",
            "`shoal evaluate` measures a model as it is.",
        )
    for compressed in compressions(config.exchange):
        compressed.check_layers([name for name, param in model.named_parameters() if param.requires_grad])
    complex_params = [name for name, param in model.named_parameters() if param.is_complex()]
    check_real(config.exchange, complex_params)
    check_savable(model, config.model.name)


@contextmanager
def torch_settings(config: RunConfig, rank: int = 0) -> Generator[torch.device]:
    """The device of this worker. Inside, torch's process-wide settings are the run's; on exit they are restored."""
    device = take_device(config, rank)
    threads, in_tf32 = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    is_fused = torch.backends.mha.get_fastpath_enabled()
    tf32 = config.precision == "tf32"
    try:
        if config.threads:
            torch.set_num_threads(config.threads)
        torch.backends.cuda.matmul.allow_tf32 = tf32
        # Fused, a `TransformerEncoder` in evaluation writes zeros at padded positions, which it does not in training.
        torch.backends.mha.set_fastpath_enabled(False)
        # A user's model may draw its weights from torch's global random state.
        with (
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            # Torch's default for convolutions is tf32, which has a relative error of 1e-3.
            torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32),
        ):
            torch.manual_seed(config.seed)
            yield device
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fused)
        torch.backends.cuda.matmul.allow_tf32 = in_tf32
        torch.set_num_threads(threads)


@lru_cache(maxsize=8)
def remedies_of(config: RunConfig) -> Remedies:
    """The settings that a hint may offer: the run would accept them, and does not have them already."""
    train = config.train
    return Remedies(
        clips=train.clip_norm is None and _accepts(config, train=replace(train, clip_norm=1.0)),
        skips=_accepts(config, train=replace(train, on_nonfinite="skip")),
        exchanges=_accepts(config, exchange=RobustConfig()),
    )


def _accepts(config: RunConfig, **changes: Any) -> bool:
    try:
        replace(config, **changes)
    except ConfigError:
        return False
    return True
