"""Build an exchange from its config. An impossible one is an error here, before any worker starts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from torch import Tensor

from shoal.codecs.build import build_codec
from shoal.comm.algorithms import ALGORITHMS
from shoal.comm.group import Group, Work
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.exchange import ExchangeConfig, RobustConfig, StagesConfig
from shoal.config.sections.values import Custom, is_own
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.auto import Auto
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.exchange.exchange import AllReduce, By, Exchange, pieces_under
from shoal.strategies.exchange.rules import Robust, check_bound, rule_of
from shoal.strategies.exchange.user_exchange import load_user_exchange
from shoal.strategies.strategy import TrainingClock


@final
class Staged(Exchange):
    """The exchange of the current stage: a pure function of the step, so all workers choose the same.

    >>> from shoal.strategies.exchange.exchange import AllReduce, By
    >>> from shoal.comm.algorithms import ring
    >>> training = TrainingClock(step=49, total_steps=100)
    >>> staged = Staged([(0.0, AllReduce()), (0.5, By(ring))], training)
    >>> staged.current
    AllReduce()
    >>> training.step = 50
    >>> staged.current == By(ring)
    True
    """

    def __init__(self, stages: Sequence[tuple[float, Exchange]], training: TrainingClock) -> None:
        self.stages = stages
        """The fraction of the training at which each begins, and its exchange; the first begins at 0."""
        self.is_sum = all(exchange.is_sum for _, exchange in stages)
        self._training = training

    @property
    def current(self) -> Exchange:
        """The exchange of the step in progress."""
        return self._training.current(self.stages)

    @property
    def tolerates(self) -> int:
        """What the current exchange tolerates."""
        return self.current.tolerates

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Start the current exchange."""
        return self.current(group, bucket)

    def pieces(self) -> dict[str, Tensor]:
        """The state of every stage, under the stage's number."""
        return {
            f"{number}.{name}": piece
            for number, (_, exchange) in enumerate(self.stages)
            for name, piece in exchange.pieces().items()
        }

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Restore the state of every stage."""
        for number, (_, exchange) in enumerate(self.stages):
            exchange.load(pieces_under(f"{number}.", pieces))


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


def _robust(config: RobustConfig, size: int) -> Exchange:
    rule = rule_of(config.rule)
    check_bound(config.rule, size, config.bad)
    return Robust(rule, config.bad)


def _compressed(config: CompressedConfig, training: TrainingClock) -> Exchange:
    if is_own(config.codec):
        build_codec(config.encodings()[0])  # a wrong path is an error here, before any worker starts
    return Auto(config, training) if config.codec == "auto" else Compressed(config, training)


def _staged(config: StagesConfig, size: int, training: TrainingClock) -> Exchange:
    return Staged(
        [(start, build_exchange(stage, size, training)) for start, stage in config.stages()], training
    )


BUILDERS: dict[str, Callable[[Any, int, TrainingClock], Exchange]] = {
    "all_reduce": lambda config, size, training: AllReduce(),
    "by": lambda config, size, training: By(ALGORITHMS[config.algorithm]),
    "robust": lambda config, size, training: _robust(config, size),
    "compressed": lambda config, size, training: _compressed(config, training),
    "stages": _staged,
}
"""Each takes its config, the number of workers, and the clock of the training."""
