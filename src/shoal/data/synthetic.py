"""Data sets generated from a seed, of any size, with a known best result.

Samples are computed with integers, so that every machine generates the same bytes, and in portions, so that a large
data set needs no memory beyond its own.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from shoal.config.sections.data import SyntheticConfig
from shoal.data.dataset import BYTES, DataSet, Split
from shoal.data.seeds import generator_for
from shoal.errors import ConfigError

PORTION_BYTES = 1 << 24
TEST_PART = 5
"""The test set has 1/TEST_PART of the training set's samples."""

PATTERN_LOW, PATTERN_HIGH = 64, 192
NOISE = 64
"""Classification: the largest distance of a pixel from its class's pattern; small distances are more likely."""

TARGET_NOISE_STD = 0.1
"""Regression: standard deviation of the noise beside a signal of variance 1; its square is the smallest error."""

ALPHABET = torch.tensor(list(b"abcdefghijklmnopqrstuvwxyz ,.;:\n"))
SUCCESSOR_PERCENT = (70, 20, 7, 3)
"""Text: after any two bytes one of four follows, with these probabilities."""
TEXT_ENTROPY = -sum(p / 100 * math.log(p / 100) for p in SUCCESSOR_PERCENT)
"""The smallest cross-entropy of the next byte in nats, for a model that sees the last two bytes: 0.86."""


def synthetic(config: SyntheticConfig) -> DataSet:
    """The data set of this configuration, including its seed.

    >>> data = synthetic(SyntheticConfig(samples=100, shape=(1, 4, 4), classes=3))
    >>> data.train, data.test
    (Split(100 samples of shape (1, 4, 4) on cpu), Split(20 samples of shape (1, 4, 4) on cpu))
    """
    return TASKS[config.task](config)


def _classification(config: SyntheticConfig) -> DataSet:
    """Each class has a pattern of uniformly drawn pixels; a sample is its class's pattern plus noise."""
    drawn = generator_for("synthetic patterns", config.seed)
    patterns = torch.randint(PATTERN_LOW, PATTERN_HIGH, (config.classes, *config.shape), generator=drawn)
    patterns = patterns.to(torch.int16)

    def make(count: int, generator: torch.Generator) -> Split:
        labels = (torch.arange(count) % config.classes)[torch.randperm(count, generator=generator)]
        inputs = torch.empty((count, *config.shape), dtype=torch.uint8)
        for part, chosen in _portions(inputs, labels):
            # One draw gives two uniform numbers; their difference has a triangular distribution around 0.
            bits = torch.randint(0, NOISE**2, part.shape, generator=generator, dtype=torch.int16)
            noise = (bits % NOISE).sub_(bits.div_(NOISE, rounding_mode="floor"))
            part.copy_(noise.add_(patterns[chosen]).clamp_(0, 255))
        return Split(inputs, labels)

    variance = ((PATTERN_HIGH - PATTERN_LOW) ** 2 + 2 * NOISE**2) / 12
    return _data_set(config, make, config.classes, std=math.sqrt(variance) / 255)


def _regression(config: SyntheticConfig) -> DataSet:
    """The target is a fixed weighted sum of the input's bytes, scaled to variance 1, plus noise."""
    width = math.prod(config.shape)
    drawn = generator_for("synthetic weights", config.seed)
    weights = torch.randint(-127, 128, (width,), generator=drawn)
    scale = 1 / math.sqrt(max(1, int(weights.square().sum())) * (256**2 - 1) / 12)
    weights = weights.to(torch.float64)

    def make(count: int, generator: torch.Generator) -> Split:
        inputs = torch.empty((count, *config.shape), dtype=torch.uint8)
        labels = torch.empty((count, 1), dtype=torch.float32)
        for part, targets in _portions(inputs, labels):
            part.random_(0, 256, generator=generator)
            # Exact in float64: integers far below 2⁵³.
            signal = (2 * part.flatten(1).to(torch.float64) - 255) @ weights / 2 * scale
            noise = torch.randint(-1000, 1001, (len(part),), generator=generator) * (math.sqrt(3) / 1000)
            targets.copy_((signal + TARGET_NOISE_STD * noise).unsqueeze(1))
        return Split(inputs, labels)

    return _data_set(config, make, outputs=1, std=math.sqrt((256**2 - 1) / 12) / 255)


def _text(config: SyntheticConfig) -> DataSet:
    """Sequences of bytes in which the last two determine the probabilities of the next."""
    if len(config.shape) != 1:
        raise ConfigError(
            f"data.shape is {config.shape}; text needs one number, the length of a sequence in bytes",
            "For example --data.shape 64.",
        )
    letters = len(ALPHABET)
    drawn = generator_for("synthetic grammar", config.seed)
    # Different successors: the first few of a shuffled alphabet, for each pair of letters.
    shuffled = torch.randint(0, 1 << 40, (letters, letters, letters), generator=drawn).argsort(-1)
    successors = shuffled[..., : len(SUCCESSOR_PERCENT)]
    choices = torch.arange(len(SUCCESSOR_PERCENT)).repeat_interleave(torch.tensor(SUCCESSOR_PERCENT))

    def make(count: int, generator: torch.Generator) -> Split:
        (length,) = config.shape
        text = torch.empty((count, length + 1), dtype=torch.int64)
        text[:, :2] = torch.randint(0, letters, (count, 2), generator=generator)[:, : length + 1]
        for place in range(2, length + 1):
            choice = choices[torch.randint(0, 100, (count,), generator=generator)]
            text[:, place] = successors[text[:, place - 2], text[:, place - 1], choice]
        text = ALPHABET[text]
        return Split(text[:, :-1].to(torch.uint8), text[:, 1:].contiguous())

    return _data_set(config, make, outputs=BYTES, std=None)


TASKS: dict[str, Callable[[SyntheticConfig], DataSet]] = {
    "classification": _classification,
    "regression": _regression,
    "text": _text,
}


def _data_set(
    config: SyntheticConfig, make: Callable[[int, torch.Generator], Split], outputs: int, std: float | None
) -> DataSet:
    """Training and test samples have separate generators: the size of one does not change the other."""
    channels = config.shape[0] if len(config.shape) == 3 else 1
    return DataSet(
        name=config.name,
        task=config.task,
        train=make(config.samples, generator_for("synthetic train", config.seed)),
        validation=None,
        test=make(max(1, config.samples // TEST_PART), generator_for("synthetic test", config.seed)),
        outputs=outputs,
        mean=None if std is None else torch.full((channels,), 0.5),
        std=None if std is None else torch.full((channels,), std),
    )


def _portions(inputs: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Views of both tensors, PORTION_BYTES of inputs at a time."""
    each = max(1, PORTION_BYTES // max(1, math.prod(inputs.shape[1:])))
    return zip(inputs.split(each), labels.split(each), strict=True)
