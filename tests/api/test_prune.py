"""`shoal.prune`: a finished run, pruned and fine-tuned."""

import pytest

import shoal
from shoal.errors import ConfigError


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("runs"))
    small = {"data": {"name": "digits", "samples": 200}, "threads": 1, "device": "cpu", "progress": False}
    return shoal.train(model={"name": "mlp", "hidden": [8]}, epochs=1, runs_dir=folder, **small)


def test_weights_are_pruned_and_the_rest_is_tuned(trained):
    found = shoal.prune(trained, sparsity=0.75, lr=1e-4, progress=False)
    assert found.before.accuracy == pytest.approx(trained.test_accuracy)
    assert found.size.num_values < 0.3 * found.size_before.num_values
    assert found.result.sparsity == pytest.approx(0.75, abs=0.01)
    assert shoal.evaluate(found.result).loss == pytest.approx(found.result.test_loss)


def test_channels_are_removed_and_the_smaller_network_is_loaded(trained):
    found = shoal.prune(trained.run, sparsity=0.5, structured=True, name="small", progress=False)
    smaller = shoal.load(found.result)
    assert sum(tensor.numel() for tensor in smaller.state_dict().values()) == found.size.num_values


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"structured": True, "pattern": "2:4"}, "--pattern prunes single weights"),
        ({"epochs": 3}, r"shoal\.prune has no setting train\.epochs"),
        ({"sparsity": 1.5}, r"prune\(sparsity=…\): expected a number ≥ 0 and < 1, got 1\.5"),
    ],
)
def test_what_is_wrong_is_named(trained, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        shoal.prune(trained, **settings)
