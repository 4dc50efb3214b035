"""What a compressed exchange keeps: the formula is what it holds after a step."""

import pytest
import torch
from torch import nn

from shoal.comm.threads.group import run_threads
from shoal.config.read import read
from shoal.memory.formulas import FEEDBACK, MEMORIES, UNKNOWN, exchange_state
from shoal.memory.measure import counted_state, measure
from shoal.memory.table import as_table, fullest
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.build import build_exchange
from shoal.strategies.strategy import TrainingClock

PARAMS = dict(nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 10)).named_parameters())
NUM_BYTES = sum(param.nbytes for param in PARAMS.values())


def by_formula(flags):
    config = read(None, f"--workers 2 --strategy ddp --optimizer sgd --optimizer.momentum 0 {flags}".split())
    return config, {each.name: each.num_bytes for each in exchange_state(config, PARAMS)}


def held(config):
    """What each of two workers holds after a step in which each parameter is sent by itself."""

    def work(group):
        exchange = build_exchange(config.exchange, 2, TrainingClock())
        for name, param in PARAMS.items():
            exchange(group, Bucket.of(name, torch.ones(param.shape))).wait()
        return counted_state(exchange, lambda storages: sum(storages.values()))

    return run_threads(2, work)


@pytest.mark.parametrize(
    ("codec", "expected"),
    {
        "topk": {FEEDBACK: 2 * NUM_BYTES},
        "fp16": {},
        "dgc": {FEEDBACK: 2 * NUM_BYTES, MEMORIES: NUM_BYTES},
        "average": {FEEDBACK: 2 * NUM_BYTES, MEMORIES: 4 * len(PARAMS)},
        # Of a matrix of 32 x 64 the factor Q is 64 x 2. Vectors are sent as they are.
        "powersgd --exchange.rank 2": {FEEDBACK: 2 * NUM_BYTES, MEMORIES: 4 * 2 * (64 + 32)},
    }.items(),
)
def test_the_formula_is_what_the_exchange_holds(codec, expected):
    config, found = by_formula(f"--exchange compressed:{codec}")
    assert found == expected
    assert held(config) == [expected, expected]


def test_one_worker_and_exact_sums_keep_nothing():
    assert by_formula("--exchange by:ring")[1] == {}
    assert by_formula("--workers 1 --exchange compressed:topk")[1] == {}


def test_what_depends_on_measurements_or_progress_is_not_known_in_advance():
    assert by_formula("--exchange compressed:auto")[1] == {UNKNOWN: None}
    assert by_formula("--exchange stages:0=all_reduce,0.5=compressed:topk")[1] == {UNKNOWN: None}


@pytest.mark.long
@pytest.mark.parametrize("codec", ["topk", "powersgd"])
def test_real_workers_have_a_row_for_it(codec):
    config = read(
        None,
        f"--model mlp --model.hidden 512,512 --strategy ddp --workers 2 --exchange compressed:{codec}".split(),
    )
    worker = fullest(measure(config))
    rows = {each.name: each.num_bytes for each in worker.components}
    assert worker.measured[FEEDBACK] == pytest.approx(rows[FEEDBACK], rel=0.01)
    assert worker.measured.get(MEMORIES) == rows.get(MEMORIES)
    assert FEEDBACK in as_table(config, worker)
