"""Every strategy equals training on one machine: step by step, in float64, on uneven and empty shares too."""

import dataclasses

import pytest
import torch
from strategy_cases import (
    BUCKETS,
    CASES,
    OPTIMIZERS,
    SHARES,
    STRATEGIES,
    SYNCS,
    Copy,
    assert_equal,
    distance,
    local,
    made,
    on_threads,
    one_machine,
    replica,
    share,
    train,
)
from torch import nn

from shoal.comm.group import Finished
from shoal.comm.reduction import Op
from shoal.config.sections.sync import STRATEGIES as TABLE
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.naive import Naive
from shoal.strategies.pieces.piece import Piece
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.replicas.contract import StrategySubject, examine_strategy
from shoal.strategies.settings import NaiveConfig

pytestmark = pytest.mark.filterwarnings(
    "ignore:the workers' initial parameters differed", "ignore:the norm of rank"
)


class Assembled:
    """A strategy whose workers hold parts of the state, seen as the replicas that the contract examines."""

    def __init__(self, strategy, group):
        self._strategy, self._group = strategy, group

    def __getattr__(self, name):
        return getattr(self._strategy, name)

    def pieces(self):
        """All pieces of one machine: this worker's own tensor where it holds a whole one, else all workers' parts."""
        mine = self._strategy.pieces()
        own = {piece.name: piece.tensor for piece in mine if piece.is_whole}
        found = WholeTensors(mine, self._group, prefix="")
        on_rank_0, pieces = dict(found), []
        for name, parts in sorted(found.parts.items()):
            tensor = on_rank_0.get(name, torch.empty(parts[0].place.shape, dtype=parts[0].dtype)).clone()
            self._group.broadcast(tensor, 0).wait()
            pieces.append(Piece.whole(name, own.get(name, tensor), self._group.rank))
        return pieces


OF_THEIR_OWN = {"single", "local", "server", "rpc"}
"""The reference, and strategies that other files compare with it."""


def test_every_strategy_of_whole_models_is_compared():
    whole = {name for name, (layout, _) in TABLE.items() if layout == "whole"}
    assert whole - OF_THEIR_OWN == {name.replace(",", "").split()[0] for name in STRATEGIES}


@pytest.mark.parametrize("name", SYNCS)
def test_keeps_the_contract(name):
    """The contract that `shoal check strategy` runs on a user's strategy: one machine's numbers, and resuming."""

    def make(parts):
        return Assembled(SYNCS[name](Copy(parts.layout, parts.update), parts.group), parts.group)

    subject = StrategySubject(make, sizes=(1, 3), limit_s=60)
    assert [verdict for verdict in examine_strategy(subject) if verdict.problem] == []


RULES = [("gd", None), ("sgd", 0.5), ("adam", 0.5), ("adamw", None)]
"""Optimizers and clipping beyond those of the contract."""
SOME = [(2, "uneven"), (4, "empty")]
"""Kinds of shares for settings that do not depend on them."""
RULED = [
    (name, *rule)
    for name in STRATEGIES
    # When buckets go, and where weights come from, has nothing to do with the optimizer.
    for rule in ([("adam", 0.5)] if name in ("ddp, early", "zero 3, gathered") else RULES)
]
# The contract has all kinds of shares with two optimizers.
CASES_OF_RULES = [(*rule, *SOME[number % 2]) for number, rule in enumerate(RULED)]
CASES_OF_RULES += [(name, "adam", 0.5, 8, "empty") for name in ("naive", "ddp", "onecopy", "zero 3", "dp")]


@pytest.mark.parametrize(("name", "optimizer", "clip_norm", "size", "kind"), CASES_OF_RULES)
def test_every_optimizer_equals_one_machine(name, optimizer, clip_norm, size, kind):
    def work(group):
        # Another seed on every worker: the strategy itself makes them start alike.
        mine = replica(OPTIMIZERS[optimizer], seed=group.rank, clip_norm=clip_norm)
        return train(STRATEGIES[name](mine, group), SHARES[size][kind], parts=2)

    assert_equal(on_threads(size, work), one_machine(optimizer, clip_norm))


@pytest.mark.parametrize(("size", "kind"), [(1, "whole"), *SOME])
@pytest.mark.parametrize(
    "config",
    [
        NaiveConfig(aggregate="parameters"),
        NaiveConfig(aggregate="parameters", combine="weighted_mean"),
        NaiveConfig(combine="weighted_mean"),
    ],
    ids=["parameters", "weighted parameters", "weighted gradients"],
)
def test_other_ways_to_the_same_sgd(config, size, kind):
    def work(group):
        return train(made(Naive, config, replica(OPTIMIZERS["sgd"]), group), SHARES[size][kind], parts=2)

    assert_equal(on_threads(size, work), one_machine("sgd"))


LOCAL = [("sgd", {}, *case) for case in CASES]
LOCAL += [
    ("gd", {}, 3, "uneven"),
    ("sgd", {"fragments": 3}, 3, "empty"),
    ("sgd", {"moments": "keep"}, 3, "uneven"),
]


@pytest.mark.parametrize(("optimizer", "options", "size", "kind"), LOCAL)
def test_local_steps_averaged_at_once_are_one_machines(optimizer, options, size, kind):
    def work(group):
        mine = replica(OPTIMIZERS[optimizer], seed=group.rank)
        return train(local(mine, group, **options), SHARES[size][kind], parts=2)

    assert_equal(on_threads(size, work), one_machine(optimizer))


def test_local_steps_of_adam_are_not_one_machines():
    def work(group):
        return train(local(replica(OPTIMIZERS["adam"]), group), (6, 6))

    found, expected = on_threads(2, work)[0], one_machine("adam")
    far = distance(found[-1][0]["model.0.weight"], expected[-1][0]["model.0.weight"])
    assert 1e-4 < far < 1, "a mean of quotients is not the quotient of the means"


@pytest.mark.parametrize("engine", ["tape", "static"])
@pytest.mark.parametrize("name", ["naive", "ddp", "ddp, early"])
def test_our_own_engines_train_under_it_too(name, engine):
    def work(group):
        return train(STRATEGIES[name](replica(OPTIMIZERS["adam"], engine=engine), group), (7, 5), parts=2)

    for member in on_threads(2, work):
        for key, piece in one_machine("adam")[-1][0].items():
            assert distance(member[-1][0][key], piece) <= 1e-10


def test_a_parameter_no_sample_reaches_is_left_alone():
    def work(group):
        mine = replica(OPTIMIZERS["adamw"])
        unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
        mine.layout.params["unused"] = unused
        strategy = STRATEGIES["naive"](mine, group)
        strategy.step(share(0, 6 * group.rank, 6, 1), 0.1)
        return unused.grad

    assert on_threads(2, work) == [None, None]


class Averaging(Exchange):
    """The mean where the sum is meant."""

    def __call__(self, group, bucket):
        return group.all_reduce(bucket.flat, Op.AVERAGE)


class Hasty(Exchange):
    """Does not wait for the others: every third bucket stays this worker's own."""

    def __init__(self):
        self._calls = 0

    def __call__(self, group, bucket):
        self._calls += 1
        return Finished() if self._calls % 3 == 0 else group.all_reduce(bucket.flat)


class Untidy(Exchange):
    """The sum, but rank 1 rounds it."""

    def __call__(self, group, bucket):
        group.all_reduce(bucket.flat).wait()
        if group.rank == 1:
            bucket.flat.mul_(1 + 2**-52)
        return Finished()


@pytest.mark.parametrize("exchange", [Averaging, Hasty, Untidy])
@pytest.mark.parametrize(("strategy", "config"), [(Naive, NaiveConfig()), (Ddp, BUCKETS)])
def test_a_wrong_exchange_is_caught(strategy, config, exchange):
    def work(group):
        return train(made(strategy, config, replica(OPTIMIZERS["sgd"]), group, exchange()), (6, 6))

    members = on_threads(2, work)
    with pytest.raises(AssertionError):
        assert_equal(members, one_machine("sgd"))


def own_mean(mine):
    """Divide each worker's loss by its own number of samples: the mean of means."""
    gradients = mine.layout.gradients

    def of_own_mean(share, **given):
        return gradients(dataclasses.replace(share, num_samples_global=2 * share.num_samples), **given)

    mine.layout.gradients = of_own_mean


def first_part_only(mine):
    """Lose what later micro-batches add."""
    gradients = mine.layout.gradients
    mine.layout.gradients = lambda share, **given: gradients(
        dataclasses.replace(share, parts=list(share.parts)[:1]), **given
    )


def clip_alone(mine):
    """Clip before the exchange, each worker by itself."""
    params, gradients = list(mine.params.values()), mine.layout.gradients

    def clipped(share, **given):
        loss = gradients(share, **given)
        nn.utils.clip_grad_norm_(params, 0.5)
        return loss

    mine.layout.gradients = clipped


@pytest.mark.parametrize("mistake", [own_mean, first_part_only, clip_alone])
@pytest.mark.parametrize("name", ["naive", "ddp"])
def test_the_classic_mistakes_are_caught(name, mistake):
    def work(group):
        mine = replica(OPTIMIZERS["sgd"], clip_norm=0.5 if mistake is clip_alone else None)
        mistake(mine)
        return train(STRATEGIES[name](mine, group), (9, 3), parts=2)

    members = on_threads(2, work)
    with pytest.raises(AssertionError):
        assert_equal(members, one_machine("sgd", 0.5 if mistake is clip_alone else None))
