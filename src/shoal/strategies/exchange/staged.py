"""Another exchange in each stage of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.exchange import Exchange, pieces_under
from shoal.strategies.exchange.training_clock import TrainingClock


@dataclass(frozen=True)
class Staged(Exchange):
    """The exchange of the current stage: a pure function of the step, so all workers choose the same.

    >>> from shoal.strategies.exchange.linear import AllReduce, By
    >>> from shoal.comm.algorithms import ring
    >>> training = TrainingClock(step=49, total_steps=100)
    >>> staged = Staged([(0.0, AllReduce()), (0.5, By(ring))], training)
    >>> staged.current
    AllReduce()
    >>> training.step = 50
    >>> staged.current == By(ring)
    True
    """

    stages: Sequence[tuple[float, Exchange]]
    """The fraction of the training at which each begins, and its exchange; the first begins at 0."""
    training: TrainingClock

    @property
    def current(self) -> Exchange:
        """The exchange of the step in progress."""
        return [exchange for start, exchange in self.stages if start <= self.training.fraction][-1]

    @property
    def tolerates(self) -> int:
        """What the current exchange tolerates."""
        return self.current.tolerates

    @property
    def is_sum(self) -> bool:
        """Whether the exchanges of all stages are sums."""
        return all(exchange.is_sum for _, exchange in self.stages)

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
