"""Learning-rate schedules: pure functions of the step, so that workers without an optimizer can compute the rate."""

import math
from collections.abc import Callable

from shoal.config.schema import ConstantConfig, CosineConfig, ScheduleConfig, StepDecayConfig

Factor = Callable[[int], float]


def factor(config: ScheduleConfig, total_steps: int) -> Factor:
    """The factor of the learning rate in step 0, 1, … of `total_steps`.

    >>> halves = factor(StepDecayConfig(every=2, factor=0.5), total_steps=6)
    >>> [halves(step) for step in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """
    after_warmup = _AFTER_WARMUP[type(config)](config, total_steps)

    def at(step: int) -> float:
        if step < config.warmup:
            return (step + 1) / (config.warmup + 1)
        return after_warmup(step - config.warmup)

    return at


def _constant(config: ConstantConfig, total_steps: int) -> Factor:
    return lambda step: 1.0


def _step_decay(config: StepDecayConfig, total_steps: int) -> Factor:
    return lambda step: config.factor ** (step // config.every)


def _cosine(config: CosineConfig, total_steps: int) -> Factor:
    last = max(total_steps - config.warmup - 1, 1)
    return lambda step: (
        config.floor + (1 - config.floor) * (1 + math.cos(math.pi * min(step / last, 1.0))) / 2
    )


_AFTER_WARMUP: dict[type, Callable[..., Factor]] = {
    ConstantConfig: _constant,
    StepDecayConfig: _step_decay,
    CosineConfig: _cosine,
}
