"""Checks that a model can be divided as the settings say, without its weights: before any worker starts."""

from shoal import models
from shoal.comm.threads.group import ThreadGroup
from shoal.config.checks import input_shape
from shoal.config.schema import RunConfig
from shoal.config.sections.data import BuiltInDataConfig, SyntheticConfig
from shoal.config.sections.values import Custom
from shoal.strategies.leaf_sums import refuse_batch_statistics
from shoal.strategies.pipeline.cut import check_num_stages, cut_by_name, cut_for_rpc
from shoal.strategies.rpc.settings import RpcConfig
from shoal.strategies.tensor.divide import divide
from shoal.strategies.tensor.plan import read_plan

OUTPUTS = {"regression": 1, "text": 256}


def check_division(config: RunConfig) -> None:
    """Refuse more stages than layers, an impossible cut, heads that do not divide, a plan that does not fit.

    Also batch norm where no bit may depend on the division. The workers check the same, and also a user's own model
    and data: that code runs in the workers only.
    """
    stages, parts = config.axes.get("pipeline", 1), config.axes.get("tensor", 1)
    is_divided = stages > 1 or parts > 1 or isinstance(config.sync, RpcConfig)
    is_invariant = config.train.reduction == "invariant"
    if (
        isinstance(config.model, Custom)
        or isinstance(config.data, Custom)
        or not (is_divided or is_invariant)
    ):
        return
    model = models.without_weights(config.model, input_shape(config.data), _num_outputs(config.data))
    if is_invariant:
        refuse_batch_statistics(model)
    if isinstance(config.sync, RpcConfig):
        cut_for_rpc(model, config.sync.cut, config.launch.workers)
    if stages > 1 and config.pipeline.cut:
        cut_by_name(model, config.pipeline.cut)
    elif stages > 1:
        check_num_stages(model, stages)
    if parts > 1:
        group, *_ = ThreadGroup.world(parts)  # dividing layers does not communicate; trying them would
        divide(model, group, read_plan(config.tensor.plan) if config.tensor.plan else None)


def _num_outputs(data: BuiltInDataConfig) -> int:
    if not isinstance(data, SyntheticConfig):
        return 10
    return OUTPUTS.get(data.task, data.classes)
