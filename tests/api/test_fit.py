"""`shoal.fit`: objects of a program, under every strategy the same result."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from shoal.api.fit import fit
from shoal.errors import ConfigError, ShoalError
from shoal.models.metrics import Metric

torch.manual_seed(0)
INPUTS = torch.randn(96, 6, generator=torch.Generator().manual_seed(1))
LABELS = (INPUTS[:, 0] > 0).long() + 2 * (INPUTS[:, 1] > 0).long()
DATA = ((INPUTS[:72], LABELS[:72]), (INPUTS[72:], LABELS[72:]))
NET = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


def make_optimizer(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def fitted(tmp_path, **settings):
    model = copy.deepcopy(NET)
    small = {"epochs": 3, "batch_size": 24, "threads": 1, "device": "cpu", "runs_dir": str(tmp_path)}
    result = fit(model, DATA, functional.cross_entropy, make_optimizer, progress=False, **small, **settings)
    return result, model


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    return fitted(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(
    "way",
    [
        {"strategy": "ddp", "launcher": "threads"},
        {},
        {"strategy": "pipeline"},
        {"strategy": "zero", "strategy.stage": 3},
    ],
    ids=lambda way: "-".join(map(str, way.values())),
)
def test_every_strategy_gives_the_model_of_one_worker(way, single, tmp_path):
    result, model = fitted(tmp_path, workers=2, **way)
    assert result.test_accuracy == single[0].test_accuracy
    for ours, expected in zip(model.parameters(), single[1].parameters(), strict=True):
        assert (ours - expected).abs().max() < 1e-5


def test_the_model_has_the_new_weights(single):
    result, model = single
    accuracy = (model(INPUTS[72:]).argmax(1) == LABELS[72:]).float().mean().item()
    assert accuracy == pytest.approx(result.test_accuracy)
    assert not torch.equal(next(model.parameters()), next(NET.parameters()))


def test_names_and_functions_are_taken_too(tmp_path):
    result = fit(
        lambda: copy.deepcopy(NET),
        lambda: DATA,
        "cross_entropy",
        {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        progress=False,
        epochs=1,
        runs_dir=str(tmp_path),
    )
    assert result.status == "completed"


def test_a_stopped_run_is_resumed(single, tmp_path):
    stopped, _ = fitted(tmp_path, name="it", steps=4, checkpoint_every=2)
    model = copy.deepcopy(NET)
    result = fit(
        model, DATA, functional.cross_entropy, make_optimizer, resume=stopped.run, steps=9, progress=False
    )
    assert result.weights_sha256 == single[0].weights_sha256


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        draw = torch.Generator().manual_seed(2)
        self.first = nn.Parameter(torch.randn(6, 400, dtype=torch.complex64, generator=draw) / 5)
        self.last = nn.Parameter(torch.randn(400, 4, generator=draw) / 20)

    def forward(self, inputs):
        return (inputs.to(torch.complex64) @ self.first).abs() @ self.last


def with_complex(tmp_path, **settings):
    model = Complex()
    small = {"steps": 4, "batch_size": 24, "threads": 1, "device": "cpu", "runs_dir": str(tmp_path)}
    settings |= {"launcher": "threads", "clip_norm": 0.05}
    fit(model, DATA, functional.cross_entropy, make_optimizer, progress=False, **small, **settings)
    return model


@pytest.mark.parametrize("strategy", ["ddp", "naive", "dp", "onecopy", "zero", "server"])
def test_complex_parameters_are_trained_as_by_one_worker(strategy, tmp_path):
    expected = with_complex(tmp_path)
    model = with_complex(tmp_path, workers=2, strategy=strategy)
    assert not torch.equal(expected.first, Complex().first)
    for ours, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("exchange", ["compressed:topk", "stages:0=all_reduce,0.5=robust:median"])
def test_complex_parameters_are_refused_by_exchanges_of_real_numbers(exchange, tmp_path):
    with pytest.raises(ShoalError, match="parameter 'first' is complex"):
        with_complex(tmp_path, workers=3, strategy="ddp", exchange=exchange)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_function_of_the_program_may_be_any_setting(workers, single, tmp_path):
    """Also one that no worker could import."""
    strategy = {"strategy": "ddp", "workers": 2} if workers == 2 else {}
    _, still = fitted(tmp_path, schedule=lambda step, total_steps: 0.0 if step else 1e-9, **strategy)
    _, moved = fitted(tmp_path, schedule=lambda step, total_steps: 1.0, **strategy)
    for ours, wanted, start in zip(moved.parameters(), single[1].parameters(), NET.parameters(), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5)
        assert not torch.equal(ours, start)
    for ours, start in zip(still.parameters(), NET.parameters(), strict=True):
        torch.testing.assert_close(ours, start, rtol=0, atol=1e-6)


def normalised(tmp_path, num_samples, **settings):
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    data = ((INPUTS[:num_samples], LABELS[:num_samples]), DATA[1])
    settings |= {"epochs": 1, "launcher": "threads", "threads": 1, "device": "cpu", "runs_dir": str(tmp_path)}
    return fit(model, data, functional.cross_entropy, make_optimizer, progress=False, **settings)


@pytest.mark.parametrize(
    ("num_samples", "settings", "share"),
    [
        (17, {}, "the batch has 1 sample, and this worker's share is 1"),
        (19, {"strategy": "ddp", "workers": 2}, "the batch has 3 samples, and this worker's share is 1"),
        (16, {"micro_batch": 1}, "this worker's share is 8"),
        (19, {"strategy": "server", "workers": 2}, "this worker's share is 1"),
    ],
)
def test_a_batch_that_is_too_small_for_batch_norm_is_named_with_one_that_suffices(
    num_samples, settings, share, tmp_path
):
    with pytest.raises(ShoalError, match=share) as caught:
        normalised(tmp_path, num_samples, batch_size=8, **settings)
    if "micro_batch" in settings:
        assert "--micro-batch" in caught.value.hint
        return
    size = int(caught.value.hint.partition("(--batch-size) of ")[2].partition(":")[0])
    assert normalised(tmp_path, num_samples, batch_size=size, **settings).status == "completed"


class Uncopied(nn.Linear):
    def __deepcopy__(self, memo):
        raise TypeError("it holds an open file")


@pytest.mark.parametrize(
    ("arguments", "settings", "sentence"),
    [
        (
            (Uncopied(6, 4), DATA),
            {},
            "the model cannot be copied for a worker: TypeError: it holds an open file",
        ),
        ((NET, 7), {}, "is a value of type int, and no samples"),
        ((NET, (INPUTS, INPUTS)), {}, "cross_entropy needs integer labels"),
        (
            (NET, DATA, lambda outputs, labels: outputs.sum()),
            {},
            "the mean of the losses of the single samples is",
        ),
        (
            (NET, DATA, nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]))),
            {},
            "return two values, the sum and the number that it is divided by",
        ),
        ((NET, DATA, nn.CrossEntropyLoss(reduction="none")), {}, r"returned \[4\].*\n  Return the mean"),
        ((nn.LazyLinear(4), DATA), {}, "parameter 'weight' has no shape yet: its layer is lazy"),
        (
            (copy.deepcopy(NET).double(), DATA),
            {},
            r"mat1 and mat2 must have the same dtype.*\n.*model.float\(\)",
        ),
        ((nn.Linear(6, 4, device="meta"), DATA), {}, "'weight' of the model is on the meta device"),
        ((NET, DATA), {"schedule": lambda step: 1.0}, r"declared as schedule\(step\), and cannot take 2"),
        ((None, DATA), {}, "model=….*expected text, a Module or a function, got None"),
        (
            (NET, DATA, "cross_entropy", lambda: None),
            {},
            r"declared as optimizer\(\), and cannot take 1 argument\n.*\(params\)",
        ),
        ((NET, DATA, 0.5), {}, "loss=….*expected text or a function, got 0.5"),
        (
            (NET, DATA, "cross_entropy", make_optimizer(NET.parameters())),
            {},
            "make_optimizer is a value of type SGD, expected a function",
        ),
        (
            (NET, DATA, "cross_entropy", lambda params: make_optimizer(NET.parameters())),
            {},
            "SGD updates 6 of 6 tensors that make_optimizer was not given",
        ),
        ((NET, DATA, "cross_entropy", torch.optim.LBFGS), {}, "LBFGS.step needs the argument 'closure'"),
        ((NET, DATA), {"epoch": 2}, "unknown setting 'epoch': did you mean 'epochs'"),
        ((NET, DATA), {"optimizer": "sgd"}, "fit takes optimizer as an argument of its own"),
        ((NET, DATA), {"memory": {"budget": "1GB"}}, "fit does not support memory.budget"),
    ],
)
def test_what_is_wrong_is_named(arguments, settings, sentence, tmp_path):
    with pytest.raises(ShoalError, match=sentence):
        fit(*arguments, progress=False, runs_dir=str(tmp_path), **settings)


def test_a_worker_process_that_fails_is_named(tmp_path):
    class Failing(nn.Linear):
        def forward(self, inputs):
            if self.training:
                raise KeyError("a key")
            return super().forward(inputs)

    with pytest.raises(ShoalError, match="KeyError: 'a key'"):
        fit(Failing(6, 4), DATA, progress=False, runs_dir=str(tmp_path), strategy="ddp", workers=2)


def test_two_at_the_same_time_are_refused(tmp_path):
    def data():
        with pytest.raises(ConfigError, match="another shoal.fit is at work"):
            fit(NET, DATA)
        return DATA

    fit(NET, data, progress=False, steps=1, runs_dir=str(tmp_path))


def right(outputs, labels):
    return outputs.argmax(1) == labels


def test_metrics_of_a_program(tmp_path):
    class Largest(Metric):
        def sums(self, outputs, labels):
            return torch.stack([outputs.exp().sum(), torch.tensor(float(len(labels)))])

        def value(self, sums):
            return sums[0] / sums[1]

    metrics = ["top2", right, Largest(), lambda outputs, labels: outputs[:, 0]]
    result, model = fitted(tmp_path, metrics=metrics, strategy="ddp", workers=2)
    outputs = model(INPUTS[72:]).detach()
    assert result.test_metrics == pytest.approx(
        {
            "top2": (outputs.topk(2).indices == LABELS[72:, None]).any(1).float().mean().item(),
            "right": result.test_accuracy,
            "Largest": outputs.exp().sum().item() / 24,
            "metric": outputs[:, 0].mean().item(),
        },
        rel=1e-5,
    )
    with pytest.raises(ConfigError, match="two objects are called right"):
        fitted(tmp_path, metrics=[right, right])
