"""Learning-rate schedules: pure functions of the step, so that workers without an optimizer can compute the rate."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from shoal.config.custom import calling, check_options, load
from shoal.config.sections.optimizer import ConstantConfig, CosineConfig, ScheduleConfig, StepDecayConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError

Factor = Callable[[int], float]


def learning_rates(config: ScheduleConfig, base_lr: float, total_steps: int) -> Callable[[int], float]:
    """The learning rate of each step."""
    multiplier = factor(config, total_steps)
    return lambda step: base_lr * multiplier(step)


def factor(config: ScheduleConfig, total_steps: int) -> Factor:
    """The factor of the learning rate in step 0, 1, … of `total_steps`.

    >>> halves = factor(StepDecayConfig(every=2, factor=0.5), total_steps=6)
    >>> [halves(step) for step in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """
    if isinstance(config, Custom):
        return _own(config, total_steps)
    after_warmup = partial(_AFTER_WARMUP[type(config)], config, total_steps)
    if not config.warmup:
        return after_warmup

    def at(step: int) -> float:
        if step < config.warmup:
            return (step + 1) / (config.warmup + 1)
        return after_warmup(step - config.warmup)

    return at


def _own(config: Custom, total_steps: int) -> Factor:
    """The user's function of (step, total_steps); every value is checked when it is used."""
    with calling("schedule", config):
        function = load("schedule", config)
        check_options("schedule", config, function, given=2)

    def at(step: int) -> float:
        value = function(step, total_steps, **dict(config.options))
        # A factor that is not finite would end in weights that are not; below 0 the loss would rise.
        if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ConfigError(
                f"schedule {config.name} returned {value!r} for step {step} of {total_steps}",
                "Return the factor of the learning rate: a number of at least 0.",
            )
        return float(value)

    at(0)
    return at


def _cosine(config: CosineConfig, total_steps: int, step: int) -> float:
    last = max(total_steps - config.warmup - 1, 1)
    return config.floor + (1 - config.floor) * (1 + math.cos(math.pi * min(step / last, 1.0))) / 2


_AFTER_WARMUP: dict[type, Callable[[Any, int, int], float]] = {
    ConstantConfig: lambda config, total_steps, step: 1.0,
    StepDecayConfig: lambda config, total_steps, step: config.factor ** (step // config.every),
    CosineConfig: _cosine,
}
"""The factor of a step, counted from the end of the warm-up."""
