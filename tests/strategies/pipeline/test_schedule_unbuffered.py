"""Schedules are executed by threads whose messages have no buffer: none deadlocks, and every message finds its user."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from unbuffered import DeadlockError, UnbufferedMessenger, run_unbuffered

from shoal.errors import ConfigError
from shoal.strategies.pipeline.schedule import ALL, ActionKind, Row, parse_row
from shoal.strategies.pipeline.schedules import SCHEDULES, build, with_weights_once
from shoal.strategies.pipeline.validate import validate

SIZES = [(1, 3), (2, 1), (2, 8), (3, 5), (4, 2), (4, 8), (8, 3), (8, 16)]


class Multiply:
    """A stage of one weight: y = (stage + 2) · x, where micro-batch k starts with x = k + 1."""

    def __init__(self, messenger: UnbufferedMessenger) -> None:
        self.messenger = messenger
        self.weight = messenger.rank + 2.0
        self.gradient = 0.0
        self.inputs: dict[int, Tensor] = {}
        self.outputs: dict[int, Tensor] = {}
        self.gradients: dict[int, Tensor] = {}
        self.for_weight: dict[int, Tensor] = {}

    def execute(self, row: Row) -> float:
        for action in row:
            self.step(action.kind, action.microbatch)
        return self.gradient

    def step(self, kind: ActionKind, k: int) -> None:
        partner = self.messenger.rank + (kind.step_to_partner if kind.is_message else 0)
        match kind:
            case ActionKind.RECV_ACTIVATION:
                self.messenger.recv(self.inputs.setdefault(k, torch.empty(1)), partner)
            case ActionKind.RECV_GRADIENT:
                self.messenger.recv(self.gradients.setdefault(k, torch.empty(1)), partner)
            case ActionKind.SEND_ACTIVATION:
                self.messenger.send(self.outputs.pop(k), partner)
            case ActionKind.SEND_GRADIENT:
                self.messenger.send(self.gradients.pop(k) * self.weight, partner)
            case ActionKind.FORWARD:
                self.outputs[k] = self.inputs.setdefault(k, torch.tensor([k + 1.0])) * self.weight
            case ActionKind.BACKWARD:
                self.backward_input(k)
                self.backward_weight(k)
            case ActionKind.BACKWARD_INPUT:
                self.backward_input(k)
            case ActionKind.BACKWARD_WEIGHT:
                for each in [*self.for_weight] if k == ALL else [k]:
                    self.backward_weight(each)
            case ActionKind.UPDATE:
                pass  # the weight stays, so that the sum of all gradients is known

    def backward_input(self, k: int) -> None:
        self.for_weight[k] = self.gradients.setdefault(k, torch.ones(1)) * self.inputs.pop(k)

    def backward_weight(self, k: int) -> None:
        self.gradient += self.for_weight.pop(k).item()


def expected(stages: int, microbatches: int) -> list[float]:
    """Of Σ x · Π weights, by each weight."""
    product = torch.arange(2.0, stages + 2.0, dtype=torch.float64).prod()
    total = microbatches * (microbatches + 1) / 2
    return [total * product.item() / (stage + 2.0) for stage in range(stages)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_ends_without_any_buffer(name):
    for stages, microbatches in SIZES:
        schedule = build(name, stages, microbatches)
        variants = [schedule] if name == "async" else [schedule, with_weights_once(schedule)]
        for each in variants:
            rows = each.rows
            gradients = run_unbuffered(stages, lambda m, rows=rows: Multiply(m).execute(rows[m.rank]))
            assert gradients == pytest.approx(expected(stages, microbatches), rel=1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_the_validation_accepts_ends_here(name):
    """Every swap of two neighbours in a row is either refused, or harmless."""
    schedule = build(name, 3, 3)
    accepted = 0
    for stage, row in enumerate(schedule.rows):
        for at in range(len(row) - 1):
            swapped = (*row[:at], row[at + 1], row[at], *row[at + 2 :])
            rows = (*schedule.rows[:stage], swapped, *schedule.rows[stage + 1 :])
            try:
                validate(replace(schedule, rows=rows))
            except ConfigError:
                continue
            accepted += 1
            gradients = run_unbuffered(3, lambda m, rows=rows: Multiply(m).execute(rows[m.rank]))
            assert gradients == pytest.approx(expected(3, 3), rel=1e-6)
    assert accepted < sum(map(len, schedule.rows)) / 2


def test_rows_that_need_a_buffer_deadlock_here():
    rows = [parse_row("F0 sA0 F1 sA1 rG0 B0 rG1 B1"), parse_row("rA0 F0 B0 sG0 rA1 F1 B1 sG1")]
    with pytest.raises(DeadlockError):
        run_unbuffered(2, lambda m: Multiply(m).execute(rows[m.rank]), timeout_s=0.2)
