"""Builds the layout of a run: how one replica of the model is divided among workers."""

from torch import nn

from shoal import models
from shoal.comm.agree import check_same_model
from shoal.comm.mesh import Mesh
from shoal.config.schema import RunConfig
from shoal.events.spans import SpanRecorder
from shoal.parallel.conditions import under_conditions
from shoal.parallel.gradient_engine import build_engine
from shoal.parallel.layout.layout import Layout
from shoal.parallel.layout.whole import Whole
from shoal.parallel.strategy import Gradients
from shoal.parallel.training_clock import TrainingClock


def build_layout(
    config: RunConfig, mesh: Mesh, model: nn.Module, span: SpanRecorder, clock: TrainingClock
) -> Layout:
    """The layout of a mesh, for a model that every worker has built from the same seed."""
    data = mesh.axis("data")
    engine = build_engine(config.engine, model, config.loss, span, config.precision)
    check_same_model(mesh.world, engine.params)

    def conditions(gradients: Gradients) -> Gradients:
        bottlenecks, faults = config.launch.bottleneck, config.launch.fault
        params, rank = engine.params.values(), mesh.world.rank
        return under_conditions(
            gradients, params, engine.on_final, bottlenecks, faults, rank, clock, config.seed, span
        )

    replica = data.rank if data is not None else 0
    return Whole(model, models.build_loss(config.loss), engine, span, conditions, replica)
