"""Every division against one machine that takes the same samples: does it change anything else?"""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from shoal import models
from shoal.comm.group import Group
from shoal.config.schema import RunConfig
from shoal.config.sections.model import MlpConfig
from shoal.data.dataset import DataSet
from shoal.data.division import Division, Global, build_division
from shoal.data.load import load
from shoal.launch import threads
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel
from shoal.training.build import torch_settings
from shoal_labs.lab3.plan import BATCH_SIZE, DIVISIONS, EQUAL_RATE, Lab3Plan, partition_of


def differences_from_same_order(plan: Lab3Plan) -> dict[str, float]:
    """Of every division: the largest relative difference of the weights from one machine that takes the same samples.

    A small network, because the claim holds for any; with the largest number of workers of the plan. It trains on the
    CPU, also where the other runs use a GPU.
    """
    config = replace(plan.equal(plan.most)[0], device="cpu")
    with torch_settings(config):
        data = load(config.data)
        return {name: _difference(name, config, data, plan.most) for name in DIVISIONS}


def _difference(name: str, config: RunConfig, data: DataSet, size: int) -> float:
    num_samples = len(data.train)
    division = build_division(partition_of(name, size), num_samples, size, config.seed, data.train.labels)
    alone = Global(num_samples, config.seed, size=1, order=division.order)
    ours = threads.run(size, _worker(config, data, division))[0]
    its = threads.run(1, _worker(config, data, alone))[0]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, its, strict=True))


def _worker(config: RunConfig, data: DataSet, division: Division) -> Callable[[Group], list[Tensor]]:
    def work(group: Group) -> list[Tensor]:
        net = models.build(MlpConfig(), data.input_shape, data.outputs, config.seed)
        model = DistributedDataParallel(net, group)
        optimizer = torch.optim.SGD(model.parameters(), lr=EQUAL_RATE)
        epoch = consumed = 0
        for _ in range(cast(int, config.train.steps)):
            mine = division.step(epoch, consumed, BATCH_SIZE, group.rank)
            batch = data.batch(data.train, mine)
            optimizer.zero_grad()
            with model.batch(num_samples=len(mine)):
                if len(mine):
                    nn.functional.cross_entropy(model(batch.inputs), batch.labels).backward()
            optimizer.step()
            consumed += BATCH_SIZE
            if consumed >= len(data.train):
                epoch, consumed = epoch + 1, 0
        return [param.detach() for param in net.parameters()]

    return work
