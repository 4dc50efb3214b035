"""What a step sends, counted on real runs: the difference between a longer and a shorter one."""

from collections import Counter

import pytest
import torch

from shoal.comm.threads.group import run_threads
from shoal.comm.traced import traced
from shoal.config.read import read
from shoal.training import worker
from shoal.training.observer import Silent
from shoal.training.stop import StopRequest

FLAGS = "--data synthetic --data.samples 600 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 32,16 "
FLAGS += "--batch-size 20 --epochs 1 --device cpu --workers 2 --launcher threads --train.test false"
ISSUED = "move"
"""The kind of the span that begins a call."""


def calls_of(tmp_path, flags, steps):
    """All calls of one worker during a run, by operation."""
    config = read(None, [*FLAGS.split(), *flags.split(), "--steps", str(steps), "--runs-dir", str(tmp_path)])

    def work(group):
        spans = []
        worker.work(config, torch.device("cpu"), StopRequest(), Silent(), traced(group, spans.append))
        return Counter(span.name for span in spans if span.kind == ISSUED)

    first, second = run_threads(2, work)
    assert first.total()
    assert first.keys() == second.keys()
    return first


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--strategy ddp", {"all_reduce": 1}),
        ("--strategy ddp --clip-norm 0.5 --optimizer sgd --momentum 0.9", {"all_reduce": 1}),
        ("--strategy ddp --strategy.bucket_mib 0.001 --strategy.first_bucket_mib 0.001", {"all_reduce": 2}),
        ("--strategy ddp --exchange by:ring", {"send": 2, "recv": 2}),
        ("--strategy local --strategy.every 1", {"all_reduce": 1}),
        ("--strategy local --strategy.every 1 --strategy.fragments 3", {"all_reduce": 3}),
        ("--strategy local --strategy.every 50", {}),
        # What costs more, and is documented to: a rule that is no sum, parameters that may get no gradient.
        ("--strategy ddp --exchange robust:median --exchange.bad 0", {"all_gather": 1, "all_reduce": 1}),
        ("--strategy ddp --strategy.unused zero", {"all_reduce": 2}),
        ("--strategy naive", {"all_reduce": 6 + 2}),
    ],
)
def test_a_step_makes_one_exchange_per_bucket_and_nothing_else(tmp_path, flags, expected):
    shorter, longer = (calls_of(tmp_path, flags, steps) for steps in (4, 9))
    longer.subtract(shorter)
    assert {name: count for name, count in longer.items() if count} == {
        name: 5 * count for name, count in expected.items()
    }
