"""Builds the layout of a run: how one replica of the model is divided among workers."""

from torch import Tensor, nn

from shoal import models
from shoal.comm.agree import check_same_model
from shoal.comm.mesh import Mesh
from shoal.config.schema import RunConfig
from shoal.events.spans import SpanRecorder
from shoal.parallel.conditions import under_conditions
from shoal.parallel.gradient_engine import build_engine
from shoal.parallel.layout.layout import Layout
from shoal.parallel.layout.tensor.divide import TensorParts, divide
from shoal.parallel.layout.tensor.plan import read_plan
from shoal.parallel.layout.whole import Whole
from shoal.parallel.strategy import Gradients
from shoal.parallel.training_clock import TrainingClock


def build_layout(
    config: RunConfig, mesh: Mesh, model: nn.Module, sample: Tensor, span: SpanRecorder, clock: TrainingClock
) -> Layout:
    """The layout of a mesh, for a model that every worker has built from the same seed.

    `sample` are the inputs of a few samples, to try the divided model with.
    """
    check_same_model(mesh.world, {name: p for name, p in model.named_parameters() if p.requires_grad})
    data = mesh.axis("data")
    parts = tensor_parts(config, mesh, model, sample)
    engine = build_engine(config.engine, model, config.loss, span, config.precision)

    def conditions(gradients: Gradients) -> Gradients:
        bottlenecks, faults = config.launch.bottleneck, config.launch.fault
        params, rank = engine.params.values(), mesh.world.rank
        return under_conditions(gradients, params, bottlenecks, faults, rank, clock, config.seed, span)

    replica = data.rank if data is not None else 0
    return Whole(model, models.build_loss(config.loss), engine, span, conditions, replica, parts)


def tensor_parts(config: RunConfig, mesh: Mesh, model: nn.Module, sample: Tensor) -> TensorParts | None:
    """Divide the layers of the model among the workers of the tensor axis, in place; None without such an axis."""
    group = mesh.axis("tensor")
    if group is None or group.size == 1:
        return None
    return divide(model, group, read_plan(config.tensor.plan) if config.tensor.plan else None, sample)
