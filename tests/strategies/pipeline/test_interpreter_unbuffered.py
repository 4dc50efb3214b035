"""The interpreter executes every schedule where messages have no buffer, and computes one machine's gradients."""

from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from unbuffered import UnbufferedMessenger, run_unbuffered

from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.pipeline.interpreter import ActivationForm, Forms, Interpreter
from shoal.strategies.pipeline.schedules import SCHEDULES, build, with_weights_once
from shoal.strategies.pipeline.stage import PipelineStage

WIDTH, SAMPLES = 3, 2


def layers(stages: int) -> list[nn.Sequential]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(stages)]


def micro_batches(count: int) -> list[Batch]:
    torch.manual_seed(1)
    draw = lambda: torch.randn(SAMPLES, WIDTH, dtype=torch.float64)  # noqa: E731
    return [Batch(draw(), draw(), SAMPLES) for _ in range(count)]


def loss(outputs, labels):
    return mse_loss(outputs, labels, reduction="sum")


def gradients_of(model: nn.Module) -> list[torch.Tensor]:
    return [param.grad for param in model.parameters() if param.grad is not None]


VARIANTS = [(name, once) for name in SCHEDULES for once in (False, True) if (name, once) != ("async", True)]


@pytest.mark.parametrize(("name", "once"), VARIANTS)
@pytest.mark.parametrize(("stages", "count"), [(1, 2), (2, 1), (2, 5), (3, 4), (4, 8), (5, 3)])
def test_every_schedule_ends_with_the_gradients_of_one_machine(name, once, stages, count):
    parts, models = micro_batches(count), layers(stages)
    alone = deepcopy(nn.Sequential(*models))
    for part in parts:
        loss(alone(part.inputs), part.labels).backward()
    schedule = with_weights_once(build(name, stages, count)) if once else build(name, stages, count)
    form = ActivationForm(torch.float64, (WIDTH,))

    def work(messenger: UnbufferedMessenger) -> list[str]:
        rank, last = messenger.rank, stages - 1
        spans = SpanRecorder(HostClock())
        stage = PipelineStage(
            models[rank],
            loss if rank == last else None,
            lambda _: nullcontext(),
            rank == 0,
            stash_weights=schedule.updates_inside,
        )
        totals = [torch.zeros_like(param) for param in models[rank].parameters()]

        def update() -> None:
            """Leaves the weights as they are, so that one machine's gradients can be compared."""
            for total, param in zip(totals, models[rank].parameters(), strict=True):
                total.add_(param.grad)

        forms = Forms(form if rank else None, form if rank < last else None)
        Interpreter(messenger, stage, spans).run(
            schedule.rows[rank], parts, forms, [1.0] * count, update if schedule.updates_inside else None
        )
        if schedule.updates_inside:
            for total, param in zip(totals, models[rank].parameters(), strict=True):
                param.grad = total
        return [name for name, kind, _, _ in spans.marks if kind == "compute"]

    executed = run_unbuffered(stages, work)
    assert executed == [[str(action) for action in row] for row in schedule.compute_rows]
    for ours, theirs in zip(gradients_of(nn.Sequential(*models)), gradients_of(alone), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
