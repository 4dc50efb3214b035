"""Another exchange in each stage of training."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from shoal.comm.group import Group, Work
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.now import Now


@dataclass(frozen=True)
class Staged:
    """The exchange of the stage that training is in: a pure function of the step, so all workers choose alike.

    >>> from shoal.parallel.exchange.linear import AllReduce, By
    >>> from shoal.comm.algorithms import ring
    >>> now = Now(step=49, total_steps=100)
    >>> staged = Staged([(0.0, AllReduce()), (0.5, By(ring))], now)
    >>> staged.current
    AllReduce(bears=0)
    >>> now.step = 50
    >>> staged.current == By(ring)
    True
    """

    stages: Sequence[tuple[float, Exchange]]
    """Where each begins, as a part of the training, and its exchange; the first begins at 0."""
    now: Now

    @property
    def current(self) -> Exchange:
        """The exchange of the step in progress."""
        return [exchange for start, exchange in self.stages if start <= self.now.fraction][-1]

    @property
    def bears(self) -> int:
        """What the exchange of this stage bears."""
        return self.current.bears

    def __call__(self, group: Group, bucket: Tensor) -> Work:
        """Start this stage's."""
        return self.current(group, bucket)
