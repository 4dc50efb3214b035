"""`local` with a codec: differences from the anchor are encoded, everything else is averaged as it is."""

import pytest
import torch
from local_cases import trained, weights_of
from strategy_cases import OPTIMIZERS, distance, local, made, on_threads, one_machine, replica, train

from shoal.codecs.build import build_codec
from shoal.codecs.codec import Form
from shoal.comm.traced import traced
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.sync import LocalConfig
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import TrainingClock
from shoal.strategies.local.local import LocalSync
from shoal.strategies.pieces.piece import by_name
from shoal.training import checkpoint
from shoal.training.progress import Progress

SGD = OPTIMIZERS["sgd"]
pytestmark = pytest.mark.filterwarnings("ignore:--exchange.rank 100 is larger")


def compressed(group, codec, every=2, optimizer=SGD, fragments=1, moments=None, **settings):
    exchange = Compressed(CompressedConfig(codec=codec, **settings), TrainingClock())
    config = LocalConfig(every=every, fragments=fragments, moments=moments)
    return made(LocalSync, config, replica(optimizer), group, exchange)


@pytest.mark.parametrize(
    ("codec", "settings"), [("topk", {"ratio": 1.0}), ("none", {}), ("powersgd", {"rank": 100})]
)
def test_a_neutral_codec_equals_one_machine(codec, settings):
    def work(group):
        return train(compressed(group, codec, every=1, fragments=2, **settings), (7, 5), parts=2)

    for member in on_threads(2, work):
        for key, piece in one_machine("sgd")[-1][0].items():
            assert distance(member[-1][0][key], piece) <= 1e-12


def test_what_is_not_sent_is_the_residual():
    """θ after the averaging is the exact mean plus all residuals."""

    def work(group):
        strategy = compressed(group, "topk", every=3, ratio=0.2, moments="keep")
        found = trained(strategy, (8, 4), steps=3)[-1]
        pieces = by_name(strategy.pieces())
        own = f"exchange.rank{group.rank}.residual."
        residuals = {name.removeprefix(own): pieces[name] for name in pieces if name.startswith(own)}
        return found, torch.cat([residuals[name].reshape(-1) for name in replica(SGD).params])

    def exact(group):
        return trained(local(replica(SGD), group, every=3, moments="keep"), (8, 4), steps=3)[-1]

    (first, mine), (second, others) = on_threads(2, work)
    assert torch.equal(first, second)
    assert mine.abs().max() > 0
    assert distance(first - mine - others, on_threads(2, exact)[0]) <= 1e-12


def test_moments_and_the_evaluated_model_are_not_encoded():
    def work(group, codec):
        strategy = compressed(group, codec, every=4, optimizer=OPTIMIZERS["adam"])
        trained(strategy, (8, 4), steps=4)
        moments = {
            name: each.clone() for name, each in by_name(strategy.pieces()).items() if "exp_avg" in name
        }
        trained(strategy, (8, 4), steps=1)
        strategy.consolidate()
        return moments, weights_of(strategy)

    def encoded(group):
        return work(group, "int8")

    def plain(group):
        return work(group, "none")

    (first, model), (_, same) = on_threads(2, encoded)
    expected = on_threads(2, plain)[0][0]
    assert all(torch.equal(first[name], expected[name]) for name in expected)
    assert torch.equal(model, same), "one model, the exact mean of all workers"


@pytest.mark.parametrize(("codec", "settings"), [("int8", {}), ("topk", {"ratio": 0.1}), ("qsgd", {})])
def test_the_declared_bytes_are_sent(codec, settings):
    def work(group):
        spans = []
        strategy = compressed(traced(group, spans.append), codec, every=2, moments="keep", **settings)
        spans.clear()
        trained(strategy, (6, 6), steps=4)
        return [span.bytes for span in spans if span.kind == "move" and span.name == "all_gather"]

    encoding = CompressedConfig(codec=codec, **settings).encoding_of("any")
    forms = [Form.of(param.detach()) for param in replica(SGD).params.values()]
    declared = sum(build_codec(encoding).fitted(form).num_bytes(form) for form in forms)
    assert on_threads(2, work)[0] == [declared, declared], "two averagings in four steps"


def test_a_resumed_run_has_the_bits_of_one_that_was_never_stopped(tmp_path):
    options = {"codec": "topk", "every": 2, "ratio": 0.3, "optimizer": OPTIMIZERS["adam"]}

    def whole(group):
        return trained(compressed(group, **options), (7, 5), steps=8)[-1]

    def cut(group):
        strategy = compressed(group, **options)
        trained(strategy, (7, 5), steps=5)
        strategy.consolidate()
        checkpoint.save(tmp_path, strategy.pieces(), Progress(step=5), keep=1, group=group)
        resumed = compressed(group, **options)
        resumed.load(checkpoint.latest(tmp_path).pieces())
        return trained(resumed, (7, 5), first=5, steps=8)[-1]

    for never_stopped, found in zip(on_threads(2, whole), on_threads(2, cut), strict=True):
        assert torch.equal(never_stopped, found)
