"""Build an exchange from its config. An impossible one is an error here, before any worker starts."""

from collections.abc import Callable
from typing import Any

from shoal.comm.algorithms import ALGORITHMS
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.exchange import ByConfig, ExchangeConfig, RobustConfig, StagesConfig
from shoal.config.sections.values import Custom
from shoal.strategies.exchange.auto import Auto
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.exchange.linear import AllReduce, By
from shoal.strategies.exchange.robust import Robust
from shoal.strategies.exchange.rules import ROBUST, check_bound
from shoal.strategies.exchange.staged import Staged
from shoal.strategies.exchange.training_clock import TrainingClock
from shoal.strategies.exchange.user_exchange import load_user_exchange


def build_exchange(config: ExchangeConfig, size: int, training: TrainingClock) -> Exchange:
    """The exchange that a config describes, among `size` workers."""
    return (
        load_user_exchange(config)
        if isinstance(config, Custom)
        else BUILDERS[config.name](config, size, training)
    )


def compressed_in(exchange: Exchange) -> list[Compressed]:
    """The exchanges that encode: this one, or some of its stages."""
    if isinstance(exchange, Staged):
        return [each for _, stage in exchange.stages for each in compressed_in(stage)]
    return [exchange] if isinstance(exchange, Compressed) else []


def check_exchange(config: ExchangeConfig, size: int) -> None:
    """Refuse an exchange that is impossible with `size` workers: too few for its bound, or a wrong path."""
    build_exchange(config, size, TrainingClock())


def _by(config: ByConfig, size: int, training: TrainingClock) -> Exchange:
    del size, training
    return By(ALGORITHMS[config.algorithm])


def _robust(config: RobustConfig, size: int, training: TrainingClock) -> Exchange:
    del training
    check_bound(config.rule, size, config.bad)
    return Robust(ROBUST[config.rule], config.bad)


def _compressed(config: CompressedConfig, size: int, training: TrainingClock) -> Exchange:
    del size
    return Auto(config, training) if config.codec == "auto" else Compressed(config, training)


def _staged(config: StagesConfig, size: int, training: TrainingClock) -> Exchange:
    return Staged(
        [(start, build_exchange(stage, size, training)) for start, stage in config.stages()], training
    )


BUILDERS: dict[str, Callable[[Any, int, TrainingClock], Exchange]] = {
    "all_reduce": lambda config, size, training: AllReduce(),
    "by": _by,
    "robust": _robust,
    "compressed": _compressed,
    "stages": _staged,
}
"""Each takes its config, the number of workers, and the clock of the training."""
