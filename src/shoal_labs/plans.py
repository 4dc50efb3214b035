"""What the plans of several labs have in common: the fewest workers, seeds of repeated runs, batches in equal parts."""

from dataclasses import replace

from shoal.kit.base import ConfigError
from shoal.kit.settings import RunConfig


def at_least_two(workers: int) -> None:
    """Refuse a lab about workers that exchange something with fewer than two of them."""
    if workers < 2:
        raise ConfigError(f"this lab needs at least 2 workers, got --workers {workers}", "Try --workers 2.")


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """The seeds of repeated runs.

    >>> seeds_from(5, 3)
    (5, 6, 7)
    """
    return tuple(range(first, first + count))


def in_parts(config: RunConfig, parts: int) -> RunConfig:
    """A run whose weights are compared with another division of the same batches: on a GPU, in equal parts.

    Libraries of a GPU choose their kernels by the number of samples, and kernels round differently: enough to flip a
    ReLU, which a few steps amplify to more than rounding. So there one machine and the workers send the same parts
    through the model, as many as `parts` in a batch, and a worker's share is one or several of them. The order of the
    sum is all that is left to differ, as on a CPU. A batch loses the samples that do not fill a part.
    """
    batch = config.train.batch_size
    if config.device == "cpu" or not isinstance(batch, int):
        return config
    part = max(1, batch // parts)
    return replace(config, train=replace(config.train, batch_size=parts * part, micro_batch=part))
