"""One worker sends bad gradients: NaN, infinity, huge ones, the wrong sign. A sum stops, robust rules are unharmed."""

import functools
import json
import math

import pytest
import torch
from torch import nn

from shoal import optim
from shoal.cli.main import main
from shoal.comm.threads.group import run_threads
from shoal.config.conditions import Fault
from shoal.config.sections.model import CrossEntropyConfig
from shoal.config.sections.optimizer import SgdConfig
from shoal.data.dataset import Batch
from shoal.errors import DivergedError
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models import build_loss
from shoal.strategies.conditions import FACTORS, under_conditions
from shoal.strategies.ddp.ddp import Ddp
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.exchange.exchange import AllReduce, Exchange
from shoal.strategies.exchange.rules import ROBUST, Robust
from shoal.strategies.gradient_engine import GradientEngine, build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.naive import Naive
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.settings import NaiveConfig
from shoal.strategies.strategy import Share, TrainingClock
from shoal.strategies.update import Update

SIZE, STEPS, FIRST_BAD = 5, 4, 2
STRATEGIES = {"naive": (Naive, NaiveConfig()), "ddp": (Ddp, DdpConfig())}


class Recorded(Exchange):
    """An exchange that keeps what went in and what came out."""

    def __init__(self, exchange):
        self.exchange = exchange
        self.sent, self.result = [], []

    @property
    def tolerates(self):
        return self.exchange.tolerates

    def __call__(self, group, bucket):
        self.sent.append(bucket.flat.clone())
        return Recording(self.exchange(group, bucket), bucket.flat, self.result)


class Recording:
    def __init__(self, work, bucket, results):
        self.work, self.bucket, self.results = work, bucket, results
        self.done = work.done

    def wait(self):
        self.work.wait()
        self.results.append(self.bucket.clone())


def train(exchange, faults=(), policy="stop", strategy="naive"):
    """STEPS steps of SIZE workers: each worker's weights at its end, its error if there was one, and its record."""

    def work(group):
        draw, now, span = torch.Generator().manual_seed(0), TrainingClock(), SpanRecorder(HostClock())
        net = nn.Linear(6, 3)
        with torch.no_grad():
            for param in net.parameters():
                param.copy_(torch.randn(param.shape, generator=draw))
        inputs = torch.randn(STEPS, SIZE, 8, 6, generator=draw)
        labels = inputs[..., :3].argmax(-1)
        engine = build_engine("torch", net, CrossEntropyConfig(), span)
        gradients = under_conditions(
            engine.gradients,
            engine.params.values(),
            engine.on_final,
            [],
            list(faults),
            group.rank,
            now,
            0,
            span,
        )
        engine = GradientEngine(gradients, engine.params, engine.on_final)
        layout = Whole(net, build_loss(CrossEntropyConfig()), engine, span)
        update = Update(layout, lambda params: optim.build(SgdConfig(lr=0.5), params))
        record = Recorded(exchange)
        sync, config = STRATEGIES[strategy]
        trained = sync(SyncParts(layout, update, group, record, Guard(group, exchange, policy)), config)
        error = None
        try:
            for now.step in range(STEPS):
                batch = Batch(inputs[now.step, group.rank], labels[now.step, group.rank], 8)
                trained.step(Share([batch], 8 * SIZE, 8), 0.5)
        except DivergedError as diverged:
            error = diverged.message
        return net.weight.detach().clone(), error, record

    return run_threads(SIZE, work)


def fault(kind, rank=1):
    return Fault(rank, kind, FIRST_BAD)


def clean_weights(steps):
    """The weights after so many good steps."""
    with pytest.warns(UserWarning, match="the step is left out"):
        stopped = train(AllReduce(), [Fault(1, "nan", steps)], "skip")
    return stopped[0][0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_a_sum_stops_before_the_weights_are_touched(kind, strategy):
    for weights, error, _ in train(AllReduce(), [fault(kind)], strategy=strategy):
        assert error is not None, "the fault did not fire"
        assert f"the norm of rank 1's gradient is {kind} " in error
        assert torch.equal(weights, clean_weights(FIRST_BAD))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_or_leaves_the_steps_out_by_policy(strategy):
    with pytest.warns(UserWarning, match="rank 1's gradient is nan .*: the step is left out"):
        members = train(AllReduce(), [fault("nan")], "skip", strategy)
    for weights, error, _ in members:
        assert error is None
        assert torch.equal(weights, clean_weights(FIRST_BAD))


def test_a_sum_is_moved_by_what_is_finite_and_says_what_it_can():
    """Why there are robust rules: nothing is wrong with these numbers but where they come from."""
    clean = train(AllReduce())[0][0]
    with pytest.warns(UserWarning, match="rank 1's gradient is .*, and the largest of the others"):
        huge = train(AllReduce(), [fault("huge")])[0][0]
    flipped = train(AllReduce(), [fault("flip")])[0][0]
    assert (huge - clean).abs().max() > 1e3
    assert (flipped - clean).abs().max() > 0.01


@functools.cache
def sent_without_fault(rule, strategy):
    """Rank 1's gradients."""
    return train(Robust(ROBUST[rule], bad=1), strategy=strategy)[1][2].sent


KINDS = [*FACTORS, "inf", "stale"]


@pytest.mark.parametrize(
    ("rule", "kind", "strategy"),
    [
        *((rule, kind, "ddp") for rule in ROBUST for kind in KINDS),
        *((rule, kind, "naive") for rule, kind in zip(ROBUST, KINDS, strict=False)),
    ],
)
@pytest.mark.filterwarnings("ignore:the norm of rank 1")
def test_robust_rules_are_unharmed(rule, kind, strategy):
    members = train(Robust(ROBUST[rule], bad=1), [fault(kind)], strategy=strategy)
    assert [error for _, error, _ in members] == [None] * SIZE
    for weights, _, _ in members:
        assert torch.equal(weights, members[0][0])
    records = [record for _, _, record in members]
    first_bad = FIRST_BAD * len(records[1].sent) // STEPS
    meant = sent_without_fault(rule, strategy)
    if kind == "stale":
        # In its first step it still has everyone's weights.
        assert torch.equal(records[1].sent[first_bad], meant[first_bad])
        assert not torch.equal(records[1].sent[-1], meant[-1])
    else:
        assert_fired(records[1].sent[first_bad], meant[first_bad], kind)
    for place in range(first_bad, len(records[0].result)):
        result = records[0].result[place]
        good = torch.stack([record.sent[place] for rank, record in enumerate(records) if rank != 1])
        if rule == "krum":
            # It may take the bad worker's row where that lies among the good ones, and nowhere else.
            middle = good.mean(0)
            farthest = max((row - middle).norm() for row in good)
            assert (result / SIZE - middle).norm() <= 2 * farthest
        else:
            assert (result / SIZE >= good.amin(0) - 1e-6).all()
            assert (result / SIZE <= good.amax(0) + 1e-6).all()


def assert_fired(sent, meant, kind):
    """What the worker sent is as bad as the fault says, compared with what it would have sent."""
    factor = FACTORS.get(kind, math.inf)
    if math.isfinite(factor):
        torch.testing.assert_close(sent, meant * factor, rtol=1e-3, atol=1e-3 * abs(factor))
    else:
        assert not sent.isfinite().any()


@pytest.mark.parametrize("rule", ROBUST)
def test_beyond_its_bound_a_rule_stops_too(rule):
    members = train(Robust(ROBUST[rule], bad=1), [fault("nan", rank=1), fault("inf", rank=3)])
    for weights, error, _ in members:
        assert error is not None
        assert "rank 1's and rank 3's gradient is nan and" in error
        assert "the exchange tolerates 1" in error
        assert weights.isfinite().all()


TINY = (
    "--data synthetic --data.samples 64 --data.shape 1,4,4 --data.classes 3 --model linear --batch-size 16 "
)
TINY += "--epochs 2 --threads 1 --device cpu --strategy naive --optimizer sgd --lr 0.1 --json --name run "
TINY += "--fault rank=1,gradient=nan,step=2"


def test_processes_stop_with_one_sentence_that_names_the_worker(tmp_path, capsys):
    assert main(["train", *TINY.split(), "--workers", "2", "--runs-dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "the norm of rank 1's gradient is nan (the largest of the others is" in said
    assert said.count("┌──") == 1
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_run_goes_on_under_a_rule_that_tolerates_it(tmp_path, capsys):
    words = f"{TINY} --workers 3 --launcher threads --exchange robust:median --runs-dir {tmp_path}"
    assert main(["train", *words.split()]) == 0
    printed = capsys.readouterr()
    assert "the norm of rank 1's gradient is nan" in printed.err
    assert ": the exchange leaves it out" in printed.err
    result = json.loads(printed.out)
    assert result["status"] == "completed"
    assert math.isfinite(result["final_loss"])
    assert result["test_accuracy"] > 0.5
