"""`shoal.evaluate` and `shoal.load`: the numbers and the model of a finished run."""

import pytest
import torch
from torch import nn

import shoal
from shoal.errors import CheckpointError, ConfigError

SMALL = {"steps": 4, "threads": 1, "device": "cpu", "progress": False}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return shoal.train(
        model={"name": "mlp", "hidden": [8]}, runs_dir=str(tmp_path_factory.mktemp("runs")), **SMALL
    )


def test_it_measures_what_the_run_measured(trained):
    found = shoal.evaluate(trained)
    assert (found.loss, found.accuracy) == pytest.approx((trained.test_loss, trained.test_accuracy))
    more = shoal.evaluate(f"{trained.run}/model.safetensors", metrics=["top3"], split="train")
    assert more.samples != found.samples
    assert more.metrics.keys() == {"top3"}


def test_the_model_is_the_trained_one(trained):
    model = shoal.load(trained)
    assert not model.training
    inputs = torch.randn(3, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(model(inputs), shoal.load(trained.run, checkpoint="last")(inputs))
    own = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, 10))
    with pytest.raises(CheckpointError, match="of another model"):
        shoal.load(trained, own)


@pytest.mark.parametrize("settings", [{"epochs": 3}, {"strategy": {"name": "ddp"}}, {"lr": 0.1}])
def test_a_setting_without_effect_is_refused(trained, settings):
    with pytest.raises(ConfigError, match=r"shoal\.evaluate has no setting"):
        shoal.evaluate(trained, **settings)


def test_the_model_of_a_program_is_given_back_to_load(tmp_path):
    torch.manual_seed(0)
    data = torch.randn(40, 6), torch.arange(40) % 2
    model = nn.Linear(6, 2)
    result = shoal.fit(model, data, runs_dir=str(tmp_path), launcher="threads", **SMALL)
    loaded = shoal.load(result, lambda: nn.Linear(6, 2))
    assert torch.equal(loaded.weight, model.weight)
    for refused in (shoal.load, shoal.evaluate):
        with pytest.raises(ConfigError, match=r"shoal\.fit"):
            refused(result)


def test_what_is_no_run_is_refused(tmp_path):
    for refused in (shoal.load, shoal.evaluate, shoal.prune):
        with pytest.raises(ConfigError, match="does not exist"):
            refused(tmp_path / "none")
    with pytest.raises(ConfigError, match="is neither a run folder"):
        shoal.load(tmp_path)
