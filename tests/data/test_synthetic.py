import hashlib
import math

import pytest
import torch

from shoal.config.sections.data import SyntheticConfig
from shoal.data import load
from shoal.data.synthetic import TARGET_NOISE_STD, TEXT_ENTROPY
from shoal.errors import ConfigError

CONFIGS = [
    SyntheticConfig(samples=600, shape=(3, 6, 6), classes=4),
    SyntheticConfig(task="regression", samples=600, shape=(12,)),
    SyntheticConfig(task="text", samples=600, shape=(40,)),
]


def digest(data):
    parts = [part for split in (data.train, data.test) for part in (split.inputs, split.labels)]
    return hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.task)
def test_the_seed_alone_decides_every_byte(config):
    torch.manual_seed(1)
    first = load(config)
    torch.manual_seed(2)
    assert digest(first) == digest(load(config))
    other = SyntheticConfig(task=config.task, samples=600, shape=config.shape, classes=config.classes, seed=1)
    assert digest(first) != digest(load(other))
    assert first.train.inputs.dtype == torch.uint8
    assert (len(first.train), len(first.test)) == (600, 120)


def test_every_machine_makes_the_same_bytes():
    assert [digest(load(config))[:12] for config in CONFIGS] == [
        "9f5bcdfb04f0",
        "d91c4ea5eb69",
        "2e877f276f25",
    ]


def test_more_samples_leave_the_test_set_of_the_same_size_as_it_is():
    few, many = (load(SyntheticConfig(samples=samples, shape=(1, 4, 4))) for samples in (50, 54))
    assert torch.equal(few.test.inputs, many.test.inputs)


def test_classes_are_balanced_and_the_nearest_pattern_tells_them_apart():
    data = load(CONFIGS[0])
    assert data.outputs == 4
    assert data.train.labels.bincount().tolist() == [150] * 4
    train, test = data.train.inputs.flatten(1).float(), data.test.inputs.flatten(1).float()
    means = torch.stack([train[data.train.labels == label].mean(0) for label in range(4)])
    accuracy = (torch.cdist(test, means).argmin(1) == data.test.labels).double().mean()
    assert accuracy > 0.98


def test_least_squares_finds_the_hidden_map_up_to_the_noise():
    data = load(CONFIGS[1])
    assert data.train.labels.shape == (600, 1)
    train = data.batch(data.train, torch.arange(600))
    test = data.batch(data.test, torch.arange(120))
    assert abs(data.train.labels.std() - 1) < 0.1
    weights = torch.linalg.lstsq(train.inputs, train.labels).solution
    error = (test.inputs @ weights - test.labels).square().mean().sqrt()
    assert 0.7 * TARGET_NOISE_STD < error < 1.3 * TARGET_NOISE_STD


def test_two_bytes_tell_the_next_as_well_as_promised_and_none_tell_nothing():
    data = load(SyntheticConfig(task="text", samples=8000, shape=(100,)))
    assert data.outputs == 256
    text = torch.cat([data.train.inputs.long(), data.train.labels[:, -1:]], 1)
    context, following = (text[:, :-2] * 256 + text[:, 1:-1]).flatten(), text[:, 2:].flatten()
    pairs = (context * 256 + following).unique(return_counts=True)[1].double()
    contexts = context.unique(return_counts=True)[1].double()

    def entropy(counts):
        return -(counts / counts.sum() * (counts / counts.sum()).log()).sum()

    assert abs(entropy(pairs) - entropy(contexts) - TEXT_ENTROPY) < 0.01
    assert entropy(following.bincount().double().clamp_min(1e-9)) > 0.9 * math.log(32)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_shortest_texts_work(length):
    data = load(SyntheticConfig(task="text", samples=5, shape=(length,)))
    assert data.train.inputs.shape == data.train.labels.shape == (5, length)


def test_text_of_pictures_is_refused_with_the_fix():
    with pytest.raises(ConfigError, match=r"one number, the length of a sequence.*\n.*--data.shape 64"):
        load(SyntheticConfig(task="text", shape=(1, 28, 28)))


def test_a_set_larger_than_a_portion_is_made_whole():
    data = load(SyntheticConfig(samples=70, shape=(3, 512, 512), classes=2))
    assert data.train.inputs[-1].float().std() > 20


def test_the_shape_follows_the_task_unless_it_is_set():
    assert SyntheticConfig(task="text").shape == (64,)
    assert SyntheticConfig().shape == (1, 28, 28)
    assert SyntheticConfig(task="text", shape=(8,)).shape == (8,)
