"""The seams carry other kinds of strategies: a model divided by rows, one divided by layers, a worker that serves.

Each equals one machine after every step; its state is saved by four workers and loaded by one, two, three and eight,
under other strategies too; and its fingerprint is one machine's.
"""

import pytest
from layout_cases import Striped, TwoStages, laid_out, served
from strategy_cases import (
    BATCH,
    OPTIMIZERS,
    STRATEGIES,
    assert_close_states,
    on_threads,
    one_machine,
    rate,
    replica,
    share_of,
    single,
    state_of,
)

from shoal.comm.alone import alone
from shoal.data.division.order import even_shares
from shoal.strategies.pieces.whole_tensors import WholeTensors, weights_sha256
from shoal.strategies.strategy import Pause, Serving
from shoal.training import checkpoint
from shoal.training.progress import Progress

FIRST, LAST = 3, 6
"""Steps before a checkpoint, and all."""


BUILDERS = {
    "rows": lambda optimizer, clip_norm=None: laid_out(Striped, "tensor", optimizer, clip_norm),
    "stages": lambda optimizer, clip_norm=None: laid_out(TwoStages, "pipeline", optimizer, clip_norm),
    "server": lambda optimizer, clip_norm=None: served(optimizer),
}
ADAM = OPTIMIZERS["adam"]
CASES = [
    *(
        ("rows", workers, rule)
        for workers in (2, 3, 4)
        for rule in (("sgd", 0.5), ("adam", 0.5), ("adamw", None))
    ),
    *(("stages", workers, rule) for workers in (2, 4, 6) for rule in (("sgd", 0.5), ("adam", None))),
    *(("server", workers, rule) for workers in (2, 3, 4) for rule in (("sgd", None), ("adam", None))),
]


def wholes_of(strategy, group):
    """The whole state, put together from all workers' pieces; on the others than rank 0 nothing."""
    return {name: tensor.clone() for name, tensor in WholeTensors(strategy.pieces(), group, prefix="")}


def steps(strategy, group, first, last, after_step=lambda: None):
    """Take steps; a worker that serves answers until the others pause."""
    if strategy.serves:
        for _ in range(first, last):
            assert not strategy.serve(Serving()).is_end
            after_step()
        assert strategy.serve(Serving()).is_end
        return
    shares = even_shares(BATCH, strategy.data_size)
    for step in range(first, last):
        strategy.step(share_of(strategy, step, shares, parts=2), rate(step))
        strategy.pause(Pause({"step": step}, is_end=False))
        after_step()
    strategy.pause(Pause({"step": last}, is_end=True))


@pytest.mark.parametrize(("name", "workers", "rule"), CASES)
def test_equals_one_machine(name, workers, rule):
    optimizer, clip_norm = rule

    def work(group):
        strategy = BUILDERS[name](OPTIMIZERS[optimizer], clip_norm)(group)
        history = []
        steps(strategy, group, 0, LAST, lambda: history.append(wholes_of(strategy, group)))
        return history

    history = on_threads(workers, work)[0]
    for step, state in enumerate(history):
        assert_close_states(state, one_machine(optimizer, clip_norm)[step][0], f"after step {step}")


LOADED = {
    "single": (1, lambda group: single(replica(ADAM, seed=7))),
    "ddp": (2, lambda group: STRATEGIES["ddp"](replica(ADAM), group)),
    "rows": (3, laid_out(Striped, "tensor", ADAM)),
    "stages": (2, laid_out(TwoStages, "pipeline", ADAM)),
    "server": (3, served(ADAM)),
    "onecopy": (3, lambda group: STRATEGIES["onecopy"](replica(ADAM), group)),
    "naive": (8, lambda group: STRATEGIES["naive"](replica(ADAM), group)),
}


CONTINUED = [
    *(("rows", loaded) for loaded in LOADED),
    *((saved, "single") for saved in ("stages", "server", "ddp", "onecopy")),
    ("server", "stages"),
    ("stages", "server"),
    ("onecopy", "rows"),
]
"""A checkpoint holds whole tensors, whoever saved it: every strategy loads it, and every strategy has saved one."""


@pytest.mark.parametrize(("saved", "loaded"), CONTINUED)
def test_saved_by_four_and_continued_by_others(saved, loaded, tmp_path):
    def save(group):
        strategy = (BUILDERS[saved](ADAM) if saved in BUILDERS else LOADED[saved][1])(group)
        steps(strategy, group, 0, FIRST)
        checkpoint.save(tmp_path, strategy.pieces(), Progress(step=FIRST), keep=1, group=group)
        return weights_sha256(strategy.pieces(), group)

    fingerprints = set(on_threads(4, save))
    found = checkpoint.latest(tmp_path)
    assert found.progress.step == FIRST
    reference = single(replica(ADAM, seed=5))
    reference.load(found.pieces())
    assert fingerprints == {weights_sha256(reference.pieces(), alone())}

    workers, build = LOADED[loaded]

    def go_on(group):
        strategy = build(group)
        strategy.load(found.pieces())
        steps(strategy, group, FIRST, LAST)
        return wholes_of(strategy, group)

    assert_close_states(on_threads(workers, go_on)[0], one_machine("adam")[LAST - 1][0], "at the end")


@pytest.mark.parametrize("name", ["rows", "stages"])
def test_every_worker_of_a_copy_evaluates_the_same(name):
    expected = single(replica(ADAM))
    (batch,) = share_of(expected, 0, (BATCH,)).parts

    def work(group):
        sums = BUILDERS[name](ADAM)(group).evaluate(batch)
        return sums.loss.item(), sums.correct.item()

    wanted = expected.evaluate(batch)
    for loss, correct in on_threads(2, work):
        assert loss == pytest.approx(wanted.loss.item(), rel=1e-12)
        assert correct == wanted.correct.item()


def test_no_worker_holds_more_than_its_rows():
    def work(group):
        strategy = BUILDERS["rows"](ADAM)(group)
        steps(strategy, group, 0, 1)
        return sum(piece.tensor.numel() for piece in strategy.pieces() if piece.name.endswith("weight"))

    whole = sum(
        tensor.numel() for name, tensor in state_of(single(replica(ADAM))).items() if name.endswith("weight")
    )
    assert sum(on_threads(3, work)) == whole


def test_a_missing_part_is_refused(tmp_path):
    def save(group):
        strategy = BUILDERS["rows"](ADAM)(group)
        checkpoint.save(tmp_path, strategy.pieces(), Progress(step=1), keep=1, group=group)

    on_threads(3, save)
    found = checkpoint.latest(tmp_path)
    (found.path / "rank1.safetensors").unlink()
    with pytest.raises(checkpoint.CheckpointError, match="rank1.safetensors cannot be read"):
        checkpoint.verify(found.path)
