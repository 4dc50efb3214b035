"""One stage: micro-batches in flight, recomputation, layers that write into their input."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from shoal.strategies.pipeline.schedule import ALL
from shoal.strategies.pipeline.stage import PipelineStage


def stage_of(model, **options):
    return PipelineStage(model, None, lambda device: nullcontext(), is_first=False, **options)


def both_passes(stage, parts):
    """Forward of all parts, then backward of all: outputs, gradients of inputs."""
    outputs = [stage.forward(number, part.clone(), part) for number, part in enumerate(parts)]
    gradients = [
        stage.backward_input(number, torch.ones_like(out), 1.0) for number, out in enumerate(outputs)
    ]
    stage.backward_weight(ALL)
    return outputs, gradients


@pytest.mark.parametrize("first", [nn.Linear(4, 4), nn.ReLU(inplace=True)])
def test_recomputing_changes_nothing(first):
    torch.manual_seed(0)
    before = nn.Sequential(first, nn.Dropout(0.5), nn.BatchNorm1d(4), nn.Linear(4, 2))
    parts = [torch.randn(8, 4) for _ in range(3)]
    results = []
    for recompute in (False, True):
        model = copy.deepcopy(before)
        torch.manual_seed(1)
        stage = stage_of(model, recompute=recompute)
        outputs, gradients = both_passes(stage, parts)
        results.append(
            [*outputs, *gradients, *model.state_dict().values(), *(p.grad for p in model.parameters())]
        )
    for kept, recomputed in zip(*results, strict=True):
        assert torch.equal(kept, recomputed)


def test_recomputing_keeps_the_inputs_only():
    stage = stage_of(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), recompute=True)
    stage.forward(0, torch.ones(2, 4), torch.empty(0))
    assert list(stage._in_flight) == [0]
    assert stage._in_flight[0].outputs is None


def test_a_stage_whose_input_has_no_effect_sends_zeros():
    class Constant(nn.Linear):
        def forward(self, inputs):
            return self.bias.expand(len(inputs), -1)

    stage = stage_of(nn.Sequential(Constant(3, 2)))
    stage.forward(0, torch.ones(4, 3), torch.empty(0))
    assert torch.equal(stage.backward_input(0, torch.ones(4, 2), 1.0), torch.zeros(4, 3))
