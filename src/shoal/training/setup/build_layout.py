"""Builds the layout of a run (how one replica of the model is divided), and checks it before workers start.

Only a run that divides its model imports the code that does.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from shoal import models, nested
from shoal.comm.agree import check_same_model
from shoal.comm.mesh import Mesh
from shoal.comm.threads.group import ThreadGroup
from shoal.config.checks import stand_in
from shoal.config.schema import RunConfig
from shoal.config.sections.data import OwnData
from shoal.config.sections.values import Custom, is_own
from shoal.events.spans import SpanRecorder
from shoal.models.losses import CountedLoss
from shoal.models.metrics import Measure
from shoal.nested import Nested
from shoal.strategies.compiled import Compiled
from shoal.strategies.conditions import under_conditions
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.layout.layout import Layout
from shoal.strategies.layout.whole import Whole
from shoal.strategies.leaf_sums import LeafSums, refuse_batch_statistics
from shoal.strategies.loss_scale import LossScale
from shoal.strategies.rpc.settings import RpcConfig
from shoal.strategies.strategy import Gradients, TrainingClock
from shoal.training.memory.prepare import prepare_activations, refuse_dropout_in_threads

if TYPE_CHECKING:
    from shoal.strategies.pipeline.observe import Order
    from shoal.strategies.tensor.divide import TensorParts

MEASURED_SAMPLES = 16
"""Samples with which the layers of a model are timed."""


def build_layout(
    config: RunConfig,
    mesh: Mesh,
    model: nn.Module,
    sample: Nested,
    span: SpanRecorder,
    clock: TrainingClock,
    measures: Sequence[Measure] = (),
    order: "Order | None" = None,
    loss_scale: LossScale | None = None,
    counts: bool = False,
) -> Layout:
    """The layout of a mesh, for a model that every worker has built from the same seed.

    `sample` are the inputs of a few samples, to try the divided model with; `order` is what `check_stages` observed;
    `counts` says that the loss returns pairs (sum, count).
    """
    device = nested.first(sample).device
    check_same_model(mesh.world, {name: p for name, p in model.named_parameters() if p.requires_grad})
    data = mesh.axis("data")
    parts = tensor_parts(config, mesh, model, sample)
    activations = prepare_activations(config, model, device)
    saving = None if activations is None else activations.saving
    loss = models.build_loss(config.loss)
    loss = CountedLoss(loss) if counts else loss
    stages = mesh.axis("pipeline")
    is_cut = stages is not None and stages.size > 1
    compiled = Compiled(model, config.model.name) if config.compile else None
    engine = build_engine(
        config.engine,
        model,
        config.loss,
        span,
        config.precision,
        saving,
        compiled,
        None if is_cut else loss_scale,
        loss,
    )

    def conditions(gradients: Gradients) -> Gradients:
        bottlenecks, faults = config.launch.bottleneck, config.launch.fault
        params, rank = engine.params.values(), mesh.world.rank
        return under_conditions(
            gradients, params, engine.on_final, bottlenecks, faults, rank, clock, config.seed, span
        )

    _mention_host_memory(mesh, device)
    replica = data.rank if data is not None else 0
    if stages is not None and is_cut:
        from shoal.strategies.pipeline.cut import cut_by_name
        from shoal.strategies.pipeline.pipeline import Pipelined

        pipeline, autocast = config.pipeline, engine.autocast
        layers = cut_by_name(model, pipeline.cut, order)
        return Pipelined(
            model, layers, stages, loss, autocast, span, pipeline, replica, parts, measures, loss_scale
        )
    leaf_sums = LeafSums(model, engine.params, span) if config.train.reduction == "invariant" else None
    return Whole(model, loss, engine, span, conditions, replica, parts, leaf_sums, measures)


def with_cut(
    config: RunConfig,
    mesh: Mesh,
    model: nn.Module,
    sample: Nested,
    batch_size: int,
    order: "Order | None" = None,
) -> RunConfig:
    """The config with the layers at which the stages of a pipeline begin: as the user says, else as rank 0 measures.

    A part of the run's settings, so that a resumed run has the same stages. Call it before the layers are divided:
    afterwards they communicate, and one worker cannot measure them alone.
    """
    num_stages = mesh.sizes.get("pipeline", 1)
    if num_stages == 1:
        return config
    pipeline, share = config.pipeline, math.ceil(batch_size / mesh.sizes.get("data", 1))
    pipeline.check_fits(num_stages, share, config.train.micro_batch)
    if pipeline.recompute:
        refuse_dropout_in_threads(config, model, "--pipeline.recompute")
    if pipeline.cut:
        return config
    from shoal.strategies.pipeline.cut import cut_by_cost

    measured = nested.cat([sample] * MEASURED_SAMPLES)
    stages = cut_by_cost(model, num_stages, mesh.world, nested.part(measured, 0, MEASURED_SAMPLES), order)
    return replace(config, pipeline=replace(pipeline, cut=tuple(stage[0].name for stage in stages[1:])))


def check_stages(config: RunConfig, model: nn.Module, sample: Nested) -> "Order | None":
    """Refuse a model that its layers, one after the other, do not compute; call it before a model is cut.

    For a pipeline of a model that does not declare the order of its layers: the order that was observed.
    """
    is_cut = config.axes.get("pipeline", 1) > 1
    if not is_cut and not isinstance(config.sync, RpcConfig):
        return None
    from shoal.strategies.pipeline.cut import check_order, cut_by_name, cut_for_rpc, layers_of, must_observe
    from shoal.strategies.pipeline.observe import observed_order

    order = None
    if is_cut and must_observe(model, config.pipeline.cut) and isinstance(sample, Tensor):
        order = observed_order(model, sample)
    if is_cut:
        names = config.pipeline.cut
        # Where it will be cut is not known yet: any two layers may be separated.
        stages = cut_by_name(model, names, order) if names else [[layer] for layer in layers_of(model, order)]
    else:
        assert isinstance(config.sync, RpcConfig)
        stages = cut_for_rpc(model, config.sync.cut, config.launch.workers)
    check_order(model, stages, sample)
    return order


def _mention_host_memory(mesh: Mesh, device: torch.device) -> None:
    """Warn once if the stages of a pipeline share a GPU: NCCL needs one for each, so messages leave the GPU."""
    if (
        mesh.sizes.get("pipeline", 1) > 1
        and device.type == "cuda"
        and mesh.world.kind != "nccl"
        and mesh.world.rank == 0
    ):
        gpus = torch.cuda.device_count()
        warnings.warn(
            f"{mesh.world.size} workers share {gpus} GPU{'s' * (gpus > 1)}: what stages send to each other goes "
            "through host memory",
            stacklevel=3,
        )


def tensor_parts(config: RunConfig, mesh: Mesh, model: nn.Module, sample: Nested) -> "TensorParts | None":
    """Divide the layers of the model among the workers of the tensor axis, in place; None without such an axis."""
    group = mesh.axis("tensor")
    if group is None or group.size == 1:
        return None
    if nested.first(sample).is_cuda and group.kind != "nccl" and mesh.world.rank == 0:
        warnings.warn(
            "workers that divide a layer share a GPU: what they send each other in every layer goes through the host's "
            "memory",
            stacklevel=2,
        )
    from shoal.strategies.tensor.divide import divide
    from shoal.strategies.tensor.plan import read_plan

    return divide(model, group, read_plan(config.tensor.plan) if config.tensor.plan else None, sample)


OUTPUTS = {"regression": 1, "text": 256}
"""Of synthetic data, where its classes do not say it."""


def check_division(config: RunConfig) -> None:
    """Refuse more stages than layers, an impossible cut, heads that do not divide, a plan that does not fit.

    Also batch norm where no bit may depend on the division. The workers check the same, and also a user's own model
    and data: that code runs in the workers only.
    """
    stages, parts = config.axes.get("pipeline", 1), config.axes.get("tensor", 1)
    is_divided = stages > 1 or parts > 1 or isinstance(config.sync, RpcConfig)
    if stages > 1 and is_own(config.pipeline.schedule):
        from shoal.strategies.pipeline.schedules import build as build_schedule
        from shoal.strategies.pipeline.validate import validate

        validate(build_schedule(config.pipeline.schedule, stages, config.pipeline.microbatches))
    is_invariant = config.train.reduction == "invariant"
    if (
        isinstance(config.model, Custom)
        or isinstance(config.data, OwnData)
        or not (is_divided or is_invariant)
    ):
        return
    data = stand_in(config.data)
    model = models.without_weights(config.model, data.shape, OUTPUTS.get(data.task, data.classes))
    if is_invariant:
        refuse_batch_statistics(model)
    from shoal.strategies.pipeline.cut import cut_by_name, cut_for_rpc, layers_of, possible_starts

    if isinstance(config.sync, RpcConfig):
        cut_for_rpc(model, config.sync.cut, config.launch.workers)
    if stages > 1 and config.pipeline.cut:
        cut_by_name(model, config.pipeline.cut)
    elif stages > 1:
        possible_starts(layers_of(model), stages)  # refuses too many
    if parts > 1:
        from shoal.strategies.tensor.divide import divide
        from shoal.strategies.tensor.plan import read_plan

        group, *_ = ThreadGroup.world(parts)  # dividing layers does not communicate; trying them would
        divide(model, group, read_plan(config.tensor.plan) if config.tensor.plan else None)
