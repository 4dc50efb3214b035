"""Data sets that a function of the user's own returns."""

import sys
import textwrap

import pytest
import torch

from shoal.config.read import read
from shoal.config.sections.values import Custom
from shoal.data.load import load
from shoal.errors import ConfigError, DataError
from shoal.training.worker import run

SOURCE = """
    import torch

    def samples(n):
        inputs = torch.randn(n, 4, generator=torch.Generator().manual_seed(n))
        return inputs, (inputs[:, 0] > 0).long()

    def one(n: int = 40):
        return samples(n)

    def pair():
        return samples(40), samples(8)

    def named():
        return {"train": samples(40), "validation": samples(6), "test": samples(8)}

    def pixels():
        pictures = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4)
        return {"train": (pictures, torch.tensor([0, 1])), "test": (pictures, torch.tensor([1, 0]))}

    def numbers():
        return (torch.zeros(4, 3), torch.zeros(4)), (torch.zeros(4, 3), torch.zeros(4))

    def wrong_key():
        return {"train": samples(4), "tset": samples(4)}

    def three():
        return samples(4), samples(4), samples(4)

    def other_shape():
        return samples(4), (torch.zeros(2, 5), torch.tensor([0, 1]))

    def negative():
        return torch.zeros(3, 4), torch.tensor([0, -1, 1])

    def broken():
        raise KeyError("a file")

    def missing():
        return open("no_such.txt").read()

    def nothing():
        samples(4)

    def nothing_to_train_on():
        return {"train": None, "test": samples(4)}

    def nowhere():
        return "no/such/folder"
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """A module `own_data` in the current directory."""
    (tmp_path / "own_data.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_data", None)


def own(name, **options):
    return load(Custom(f"own_data:{name}", tuple(options.items())))


def test_a_fifth_is_the_test_set_where_there_is_none():
    with pytest.warns(UserWarning, match="no test set: 8 of 40 samples are used as one"):
        data = own("one")
    assert (len(data.train), len(data.test), data.task, data.outputs) == (32, 8, "classification", 2)


def test_a_pair_is_train_and_test():
    data = own("pair")
    assert (len(data.train), data.validation, len(data.test)) == (40, None, 8)


def test_splits_by_name():
    data = own("named")
    assert data.validation is not None
    assert len(data.validation) == 6


def test_validation_is_held_out_of_the_training_set():
    data = own("pair", validation=0.25)
    assert data.validation is not None
    assert (len(data.train), len(data.validation)) == (30, 10)
    with pytest.raises(ConfigError, match=r"data.validation: expected a number ≥ 0 and < 1, got 2"):
        own("pair", validation=2)


def test_pixels_are_normalised_by_the_training_set():
    data = own("pixels")
    inputs = data.batch(data.train, torch.arange(2)).inputs
    assert inputs.mean(dim=(0, 2, 3)).abs().max() < 1e-3
    assert (inputs.std(dim=(0, 2, 3), correction=0) - 1).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("wrong_key", "unknown split 'tset': did you mean 'test'"),
        ("three", "returned a tuple of 3 values"),
        (
            "other_shape",
            r"the inputs of test are float32 of shape \[5\], and those of train float32 of shape \[4\]",
        ),
        ("negative", "sample 1 of train has label -1; labels begin at 0"),
        ("broken", r"data own_data:broken failed with KeyError: 'a file'\n  at .*own_data.py:\d+"),
        ("missing", r"FileNotFoundError: .*no_such.txt'\n  Paths are relative to the current directory"),
        ("nothing", "data own_data:nothing returned None\\n  Return the samples"),
        ("nothing_to_train_on", "returned no training samples"),
        ("nowhere", "no/such/folder does not exist"),
    ],
)
def test_what_is_wrong_is_named(name, sentence):
    with pytest.raises(DataError, match=sentence):
        own(name)


def test_an_option_that_the_function_does_not_take():
    with pytest.raises(ConfigError, match="data own_data:pair cannot be called with n=3"):
        own("pair", n=3)


@pytest.mark.parametrize("flags", ["", "--validation 0.2", "--mesh data=1"])
def test_a_run_trains_on_it(tmp_path, flags):
    flags = f"--data own_data:pair --model mlp --epochs 8 --lr 0.01 --runs-dir {tmp_path} {flags}"
    result = run(read(None, flags.split()))
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.7
    assert "-pair-" in result.run


def test_labels_that_do_not_fit_the_loss(tmp_path):
    flags = f"--data own_data:numbers --model mlp --steps 1 --runs-dir {tmp_path}"
    with pytest.raises(
        ConfigError, match=r"cross_entropy needs integer labels .*, but the labels are torch.float32"
    ):
        run(read(None, flags.split()))
