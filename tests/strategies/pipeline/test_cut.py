"""Where a model is cut: by cost, by name; what cannot be cut is refused."""

from itertools import combinations, pairwise

import pytest
import torch
from torch import nn

from shoal.comm.alone import alone
from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError
from shoal.models.lenet import lenet
from shoal.models.mlp import mlp
from shoal.models.resnet18 import resnet18
from shoal.strategies.pipeline.cut import (
    balanced,
    cut_by_cost,
    cut_by_name,
    cut_by_size,
    layers_of,
    measured_costs,
)


def names(stages):
    return [[name for name, _ in stage] for stage in stages]


def slowest_stage(costs, starts):
    return max(sum(costs[first:last]) for first, last in pairwise((0, *starts, len(costs))))


@pytest.mark.parametrize("num_stages", [1, 2, 3, 4])
@pytest.mark.parametrize("costs", [[5, 1, 1, 1, 1, 5], [1, 2, 3, 4, 5, 6], [0, 0, 9, 0, 0, 0]])
def test_no_cut_has_a_faster_slowest_stage(costs, num_stages):
    allowed = [1, 2, 4, 5]
    starts = balanced(costs, allowed, num_stages)
    assert set(starts) <= set(allowed)
    possible = combinations(allowed, num_stages - 1)
    assert slowest_stage(costs, starts) == min(slowest_stage(costs, each) for each in possible)


def test_all_workers_cut_where_rank_0_says():
    def work(group):
        return names(cut_by_cost(mlp(hidden=(32, 16, 8)), 3, group, torch.zeros(2, 784)))

    first, second, third = run_threads(3, work)
    assert first == second == third
    assert len(first) == 3
    # Every stage but the first begins at a layer with parameters.
    assert all(stage[0].startswith("fc") for stage in first[1:])


def test_measuring_changes_neither_weights_nor_statistics():
    model = resnet18((3, 8, 8), width=4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    layers = layers_of(nn.Sequential(model, nn.Dropout(), nn.ReLU(inplace=True)))
    costs = measured_costs(layers, torch.ones(2, 3, 8, 8))
    assert len(costs) == 13
    assert min(costs) > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(param.grad is None for param in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_cuts_by_name():
    assert names(cut_by_name(mlp(), ["fc2", "relu2"])[:1]) == [["flatten", "fc1", "relu1"]]
    assert names(cut_by_name(resnet18(width=4), ["stage2"]))[1][0] == "stage2.0"


TIED = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 4))
TIED[3].weight = TIED[0].weight


@pytest.mark.parametrize(
    ("model", "cut", "message"),
    [
        (mlp(), ["fc22"], "unknown layer 'fc22': did you mean 'fc2'"),
        (mlp(), ["fc3", "fc2"], "the cut at 'fc2' is not after 'fc3'"),
        (mlp(), ["flatten"], "cannot cut at 'flatten', the first layer: a stage begins there already"),
        (mlp(), ["fc1"], r"stage 0 \(flatten\) has no parameters to train"),
        (resnet18(width=4), ["stage1.0.conv2"], "'stage1.0.conv2': it is inside 'stage1.0'.*skip connection"),
        (TIED, ["2"], "the cut at '2' separates the tied weights of '0' and '3'"),
    ],
)
def test_cuts_that_are_refused(model, cut, message):
    with pytest.raises(ConfigError, match=message):
        cut_by_name(model, cut)


def test_more_stages_than_layers_are_refused():
    with pytest.raises(ConfigError, match="cannot cut the model into 4 stages: it has 3 layers"):
        cut_by_cost(mlp(), 4, alone(), torch.zeros(2, 784))
    with pytest.raises(ConfigError, match="into 2 stages without separating tied weights"):
        cut_by_cost(TIED, 2, alone(), torch.zeros(2, 4))


def test_by_size_lenet_is_cut_into_convolutions_and_fully_connected_layers():
    first, second = cut_by_size(lenet(), 2)
    assert [layer.name for layer in first][-1] == "flatten"
    assert [layer.name for layer in second] == ["fc1", "relu3", "fc2"]
    with pytest.raises(ConfigError, match="cannot cut the model into 5 stages: it has 4 layers"):
        cut_by_size(lenet(), 5)
