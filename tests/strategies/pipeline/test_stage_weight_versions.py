"""Weight stashing: which versions a stage keeps, for how long, and what the backward pass uses."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from shoal.strategies.pipeline.schedule import ActionKind
from shoal.strategies.pipeline.schedules import build
from shoal.strategies.pipeline.stage import PipelineStage

WIDTH = 3


def stage_of(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2))
    return PipelineStage(
        model.double(), None, lambda device: nullcontext(), is_first=False, stash_weights=True, **options
    )


def halve(stage):
    """An update that changes every weight."""

    @torch.no_grad()
    def update():
        for param in stage.model.parameters():
            param.mul_(0.5)

    stage.update(update)


def inputs(microbatch):
    draw = torch.Generator().manual_seed(microbatch)
    return torch.randn(4, WIDTH, generator=draw, dtype=torch.float64)


def execute(stage, row):
    """The versions in memory after each action that computes."""
    counts = []
    for action in row:
        match action.kind:
            case ActionKind.FORWARD:
                stage.forward(action.microbatch, inputs(action.microbatch), torch.empty(0))
            case ActionKind.BACKWARD:
                gradient = torch.ones(4, 2, dtype=torch.float64)
                stage.backward_input(action.microbatch, gradient, 1.0)
                stage.backward_weight(action.microbatch)
            case _:
                halve(stage)
        counts.append(len(stage.versions._stashed) + 1)
    return counts


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 8), (3, 8), (4, 8)])
def test_one_version_per_micro_batch_in_flight(stages, microbatches, recompute):
    for number, row in enumerate(build("async", stages, microbatches).compute_rows):
        stage = stage_of(recompute=recompute)
        counts = execute(stage, row)
        assert max(counts) == stages - number
        assert counts[-1] == 1
        assert not stage._in_flight


def test_backward_uses_the_weights_of_its_forward():
    expected = stage_of()
    expected.forward(0, inputs(0), torch.empty(0))
    wanted = expected.backward_input(0, torch.ones(4, 2, dtype=torch.float64), 1.0)
    expected.backward_weight(0)
    for recompute in (False, True):
        stage = stage_of(recompute=recompute)
        stage.forward(0, inputs(0), torch.empty(0))
        newest = [0.25 * param.detach().clone() for param in stage.model.parameters()]
        halve(stage)
        halve(stage)
        found = stage.backward_input(0, torch.ones(4, 2, dtype=torch.float64), 1.0)
        stage.backward_weight(0)
        assert torch.equal(found, wanted)
        for param, other, value in zip(
            stage.model.parameters(), expected.model.parameters(), newest, strict=True
        ):
            assert torch.equal(param.grad, other.grad)
            assert torch.equal(param, value)


def test_the_memory_of_a_version_is_freed_with_its_last_micro_batch():
    stage = stage_of()
    weight = stage.model[0].weight
    for microbatch in (0, 1):
        stage.forward(microbatch, inputs(microbatch), torch.empty(0))
    first = weight.data_ptr()
    halve(stage)
    assert weight.data_ptr() != first
    (stashed,) = stage.versions._stashed.values()
    storage = stashed[0].untyped_storage()._weak_ref()
    del stashed
    for microbatch in (0, 1):
        assert not torch.UntypedStorage._expired(storage)
        stage.backward_input(microbatch, torch.ones(4, 2, dtype=torch.float64), 1.0)
        stage.backward_weight(microbatch)
    assert torch.UntypedStorage._expired(storage)
    torch.UntypedStorage._free_weak_ref(storage)


def test_an_update_without_micro_batches_in_flight_copies_nothing():
    stage = stage_of()
    memory = stage.model[0].weight.data_ptr()
    execute(stage, build("async", 1, 3).compute_rows[0])
    assert stage.model[0].weight.data_ptr() == memory
