"""The bytes that `shoal explain` shows are those that `bench/sent.py` holds against real runs."""

import pytest

from sent import CASES, N, declared
from shoal.codecs.build import CODECS
from shoal.config.read import read
from shoal.explain.cost import fraction, of_codec, of_rule, sent_bytes
from shoal.explain.names import row_of

SENT = {
    ("naive", 0): CASES["naive"].sent,
    ("ddp", 0): CASES["ddp"].sent,
    ("onecopy", 0): CASES["onecopy"].sent,
    ("zero", 0): CASES["zero 1"].sent,
    ("zero", 1): CASES["zero 2"].sent,
    ("local", 0): lambda workers: CASES["local, adam"].sent(workers) * 2 / 20,
    ("server", 0): CASES["server bsp"].sent,
    ("dp", 0): CASES["ddp"].sent,  # and inputs and outputs
}


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize(("name", "number"), SENT)
def test_a_strategy_sends_what_its_runs_send(name, number, workers):
    case = row_of(name).cases[number]
    config = read(None, [*case.flags.split(), "--workers", str(workers)])
    assert getattr(config.sync, "every", 20) == 20
    assert sent_bytes(case, config.axes, N // 4) == pytest.approx(SENT[name, number](workers))


def test_stage_3_gathers_twice_all_but_a_unit():
    case = row_of("zero").cases[2]
    assert sent_bytes(case, {"data": 4}, N // 4) == pytest.approx(CASES["ddp"].sent(4) * 1.5)
    assert sent_bytes(case, {"data": 4}, N // 4) > CASES["zero 3"].sent(4)


@pytest.mark.parametrize("name", CODECS)
def test_a_codec_travels_as_in_a_run(name):
    operation, num_bytes, sent = of_codec(name, workers=4)
    assert (operation == "all_reduce") == declared(name)[1]
    assert sent == num_bytes * (1.5 if operation == "all_reduce" else 3)


def test_a_rule_gathers_all_gradients():
    assert of_rule(N // 4, 4) == pytest.approx(CASES["robust:median"].sent(4))


def test_activations_pass_every_stage_but_one():
    assert fraction("forward", 4) == 0.75
    row = row_of("pipeline")
    assert sent_bytes(row.cases[0], {"pipeline": 1}, 100) == 0
