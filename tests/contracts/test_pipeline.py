"""Every schedule of a pipeline equals one machine after every step, for any number of stages and of micro-batches."""

from itertools import cycle

import pytest
import torch
from pipeline_cases import BLOCK_CUTS, CUTS, BlockNetwork, deep_network, pipelined
from strategy_cases import (
    BATCH,
    OPTIMIZERS,
    SHARES,
    STRATEGIES,
    assert_close_states,
    on_threads,
    one_machine,
    rate,
    replica,
    share_of,
    single,
)

from shoal.comm.alone import alone
from shoal.config.sections.optimizer import AdamConfig
from shoal.data.division.order import even_shares
from shoal.errors import CheckpointError
from shoal.strategies.pieces.piece import by_name
from shoal.strategies.pieces.whole_tensors import WholeTensors, weights_sha256
from shoal.strategies.pipeline.schedules import SCHEDULES as TABLE
from shoal.strategies.pipeline.settings import PipelineConfig
from shoal.training import checkpoint
from shoal.training.progress import Progress

STEPS = 3
READABLE = AdamConfig(lr=0.01, fast=False)
"""The step whose bits do not depend on how parameters are sliced."""
SCHEDULES = [name for name in TABLE if not PipelineConfig(name).updates_inside]
PLANS = {
    **{name: PipelineConfig(name, microbatches=4) for name in SCHEDULES},
    "1f1b, weights once": PipelineConfig("1f1b", microbatches=4, weight_gradients="once"),
    "1f1b, recomputed": PipelineConfig("1f1b", microbatches=4, recompute=True),
    "zero-bubble, recomputed": PipelineConfig("zero-bubble", microbatches=3, recompute=True),
    "gpipe, more micro-batches than samples": PipelineConfig("gpipe", microbatches=50),
    "one micro-batch": PipelineConfig("1f1b", microbatches=1),
}
RULES = {
    "sequential": ("gd", None),
    "gpipe": ("sgd", 0.5),
    "1f1b": ("adam", 0.5),
    "zero-bubble": ("adamw", None),
}
"""The optimizer and the limit of the norm: a schedule depends on neither, so each has its own."""


def history(stages, workers, plan, rule, shares, sync="ddp", network=deep_network, cuts=CUTS):
    """The whole state and the loss after every step, as rank 0 puts it together."""

    def work(group):
        optimizer = READABLE if rule[0] == "readable adam" else OPTIMIZERS[rule[0]]
        strategy = pipelined(stages, plan, optimizer, rule[1], network, cuts, sync=sync)(group)
        states = []
        for step in range(STEPS):
            loss = strategy.step(share_of(strategy, step, shares, parts=2), rate(step)).loss
            wholes = WholeTensors(strategy.pieces(), group, prefix="")
            states.append(({name: tensor.clone() for name, tensor in wholes}, loss.item()))
        return states

    return on_threads(workers, work)


def assert_equals_one_machine(members, rule, network=deep_network):
    expected = one_machine(*rule, network=network)
    for step in range(STEPS):
        assert_close_states(members[0][step][0], expected[step][0], f"after step {step}")
        for states in members:
            assert states[step][1] == pytest.approx(expected[step][1], rel=1e-12)


CASES = [(name, 3) for name in PLANS] + [(name, stages) for name in SCHEDULES for stages in (2, 4)]


@pytest.mark.parametrize(("name", "stages"), CASES)
def test_equals_one_machine(name, stages):
    rule = RULES.get(name, ("sgd", 0.5))
    assert_equals_one_machine(history(stages, stages, PLANS[name], rule, (BATCH,)), rule)


@pytest.mark.parametrize(
    ("name", "stages"), [*zip(SCHEDULES, cycle((2, 4, 3, 2)), strict=False), ("1f1b, recomputed", 3)]
)
def test_stages_of_an_observed_order_equal_one_machine(name, stages):
    rule = RULES.get(name, ("sgd", 0.5))
    members = history(stages, stages, PLANS[name], rule, (BATCH,), network=BlockNetwork, cuts=BLOCK_CUTS)
    assert_equals_one_machine(members, rule, BlockNetwork)


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, "uneven") for name in SCHEDULES), ("1f1b", "even"), ("1f1b", "empty")]
)
def test_two_pipelines_divide_the_batch(name, kind):
    rule = ("adam", 0.5)
    assert_equals_one_machine(history(2, 4, PLANS[name], rule, SHARES[2][kind]), rule)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [*((kind, ("sgd", 0.5)) for kind in SHARES[2]), ("uneven", ("adamw", None))],
)
@pytest.mark.parametrize("sync", ["onecopy", "zero 1"])
def test_two_pipelines_divide_their_optimizer_state(sync, kind, rule):
    assert_equals_one_machine(history(2, 4, PLANS["1f1b"], rule, SHARES[2][kind], sync), rule)


@pytest.mark.parametrize("sync", ["onecopy", "zero 1"])
def test_the_sync_of_two_pipelines_changes_no_bit(sync):
    rule = ("readable adam", 0.5)
    expected, found = (history(2, 4, PLANS["1f1b"], rule, (7, 5), name)[0][-1][0] for name in ("ddp", sync))
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], each) for name, each in expected.items())


def test_each_worker_of_a_mesh_has_its_slice_of_its_stages_moments():
    def work(group):
        strategy = pipelined(2, PLANS["1f1b"], ADAM, sync="zero 1")(group)
        strategy.step(share_of(strategy, 0, (6, 6)), 0.1)
        return {
            piece.name: piece.tensor.numel() for piece in strategy.pieces() if piece.name.endswith(".exp_avg")
        }

    owned = on_threads(4, work)
    whole = one_machine("adam", network=deep_network)[0][0]
    moments = {name: tensor.numel() for name, tensor in whole.items() if name.endswith(".exp_avg")}
    assert {name: sum(mine.get(name, 0) for mine in owned) for name in moments} == moments


def test_every_worker_evaluates_the_same():
    expected = single(replica(OPTIMIZERS["adam"], network=deep_network))
    (batch,) = share_of(expected, 0, (BATCH,)).parts
    wanted = expected.evaluate(batch)

    def work(group):
        sums = pipelined(3, PLANS["1f1b"], OPTIMIZERS["adam"])(group).evaluate(batch)
        return sums.loss.item(), sums.correct.item(), sums.predictions, sums.samples

    for loss, *others in on_threads(3, work):
        assert loss == pytest.approx(wanted.loss.item(), rel=1e-12)
        assert others == [wanted.correct.item(), wanted.predictions, wanted.samples]


def test_a_stop_signal_of_one_stage_reaches_all():
    def work(group):
        strategy = pipelined(2, PLANS["1f1b"], OPTIMIZERS["sgd"])(group)
        share = share_of(strategy, 0, (BATCH,))
        object.__setattr__(share, "stop_signal", 15 if group.rank == 0 else 0)
        return strategy.step(share, 0.1).stop_signal

    assert on_threads(2, work) == [15, 15]


@pytest.mark.parametrize(
    ("workers", "sync", "whose"), [(2, "ddp", "0–1"), (4, "zero 1", "2–3"), (4, "onecopy", "2–3")]
)
def test_a_number_that_is_not_finite_stops_all_stages(workers, sync, whose):
    def work(group):
        strategy = pipelined(2, PLANS["1f1b"], OPTIMIZERS["sgd"], sync=sync)(group)
        share = share_of(strategy, 0, (6, 6))
        if strategy.data_rank == strategy.data_size - 1:
            share.parts[0].inputs[3] = torch.nan
        with pytest.raises(ArithmeticError, match=f"the norm of ranks {whose}'s gradient is nan"):
            strategy.step(share, 0.1)
        return all(tensor.isfinite().all() for tensor in strategy._layout.params.values())

    assert on_threads(workers, work) == [True] * workers


ADAM = OPTIMIZERS["adam"]
OBSERVED = {"network": BlockNetwork, "cuts": BLOCK_CUTS}
LOADED = {
    "single": (1, lambda group: single(replica(ADAM, seed=7, network=deep_network))),
    "ddp": (2, lambda group: STRATEGIES["ddp"](replica(ADAM, network=deep_network), group)),
    "2 stages": (2, pipelined(2, PLANS["zero-bubble"], ADAM)),
    "3 stages": (3, pipelined(3, PLANS["gpipe"], ADAM)),
    "2 pipelines": (4, pipelined(2, PLANS["1f1b"], ADAM)),
    "2 pipelines, zero": (4, pipelined(2, PLANS["1f1b"], ADAM, sync="zero 1")),
    "2 pipelines, onecopy": (4, pipelined(2, PLANS["gpipe"], ADAM, sync="onecopy")),
}


OBSERVED_LOADED = {
    "single": (1, lambda group: single(replica(ADAM, network=BlockNetwork))),
    "2 stages": (2, pipelined(2, PLANS["zero-bubble"], ADAM, **OBSERVED)),
    "2 pipelines, zero": (4, pipelined(2, PLANS["1f1b"], ADAM, sync="zero 1", **OBSERVED)),
    "4 stages": (4, pipelined(4, PLANS["gpipe"], ADAM, **OBSERVED)),
}

CONTINUED = [
    *(("3 stages", loaded) for loaded in LOADED),
    *((saved, "2 stages") for saved in ("ddp", "2 pipelines", "2 pipelines, zero")),
    ("2 pipelines, zero", "3 stages"),
    ("2 pipelines", "2 pipelines, onecopy"),
]
"""A checkpoint holds whole tensors, whoever saved it: every mesh loads it, and every kind of mesh has saved one."""


@pytest.mark.parametrize(("saved", "loaded"), CONTINUED)
def test_saved_by_some_workers_and_continued_by_others(saved, loaded, tmp_path):
    assert_continued(LOADED[saved], LOADED[loaded], deep_network, tmp_path)


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        ("2 stages", "single"),
        ("single", "4 stages"),
        ("4 stages", "2 stages"),
        ("2 pipelines, zero", "4 stages"),
    ],
)
def test_stages_of_an_observed_order_save_and_load_the_names_of_one_machine(saved, loaded, tmp_path):
    assert_continued(OBSERVED_LOADED[saved], OBSERVED_LOADED[loaded], BlockNetwork, tmp_path)


def assert_continued(saved, loaded, network, tmp_path):
    def steps(strategy, first, last):
        for step in range(first, last):
            shares = even_shares(BATCH, strategy.data_size)
            strategy.step(share_of(strategy, step, shares), rate(step))

    def save(group):
        strategy = saved[1](group)
        steps(strategy, 0, 2)
        checkpoint.save(tmp_path, strategy.pieces(), Progress(step=2), keep=1, group=group)
        return weights_sha256(strategy.pieces(), group)

    fingerprints = set(on_threads(saved[0], save))
    found = checkpoint.latest(tmp_path)
    reference = single(replica(ADAM, seed=5, network=network))
    reference.load(found.pieces())
    assert fingerprints == {weights_sha256(reference.pieces(), alone())}

    def go_on(group):
        strategy = loaded[1](group)
        strategy.load(found.pieces())
        steps(strategy, 2, 4)
        return {name: each.clone() for name, each in WholeTensors(strategy.pieces(), group, prefix="")}

    expected = one_machine("adam", network=network)[3][0]
    assert_close_states(on_threads(loaded[0], go_on)[0], expected, "at the end")


def test_weights_of_another_model_are_refused():
    other = single(replica(ADAM))

    def work(group):
        with pytest.raises(CheckpointError, match="of another model"):
            pipelined(2, PLANS["1f1b"], ADAM)(group).load(by_name(other.pieces()))

    on_threads(2, work)
