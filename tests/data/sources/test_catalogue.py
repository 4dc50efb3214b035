import torch

from shoal.config.sections.data import DigitsConfig
from shoal.data import load
from shoal.data.sources.catalogue import CATALOGUE
from shoal.data.sources.files import find, verify


def test_the_shipped_files_hash_to_the_pinned_sums_and_are_small():
    assert [state.problem for state in verify("digits")] == [""] * 4
    assert sum(path.stat().st_size for path in find("digits").values()) < 2_100_000


def test_the_shipped_digits_are_stratified():
    data = load(DigitsConfig())
    assert data.train.labels.bincount().tolist() == [1000] * 10
    assert data.test.labels.bincount().tolist() == [200] * 10
    assert (data.input_shape, data.outputs, data.task) == ((1, 28, 28), 10, "classification")


def test_no_test_picture_is_a_training_picture():
    data = load(DigitsConfig())
    together = torch.cat([data.train.inputs, data.test.inputs]).flatten(1)
    assert len(together.unique(dim=0)) == 12_000


def test_a_straight_line_already_tells_most_digits_apart():
    """The pictures belong to their labels: least squares on 784 pixels reads more than four of five."""
    data = load(DigitsConfig())
    train = data.batch(data.train, torch.arange(10_000))
    test = data.batch(data.test, torch.arange(2_000))
    targets = torch.nn.functional.one_hot(train.labels, 10).float()
    inputs = train.inputs.flatten(1)
    weights = torch.linalg.solve(inputs.T @ inputs + 1000 * torch.eye(784), inputs.T @ targets)
    assert ((test.inputs.flatten(1) @ weights).argmax(1) == test.labels).double().mean() > 0.8


def test_all_mirrors_are_https_and_there_are_at_least_two():
    for entry in CATALOGUE.values():
        if not entry.shipped:
            assert len(entry.mirrors) >= 2
        assert all(mirror.startswith("https://") and mirror.endswith("/") for mirror in entry.mirrors)
        assert all(len(file.sha256) == 64 for file in entry.files)
