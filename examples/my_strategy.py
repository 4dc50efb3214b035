"""Two user-defined strategies: how workers that hold replicas of a model agree, in a few lines each.

A strategy derives from `shoal.ReplicaSync` and overrides `combine`, which changes the gradients before the update, or
`mix`, which changes the weights after it. Check it with the contract of shoal's own strategies:

    shoal check strategy examples.my_strategy:SignVote
    shoal check strategy examples.my_strategy:Gossip --strategy.neighbours 2 --workers 5

Then train with it, and compare:

    shoal train quickstart --strategy examples.my_strategy:Gossip --workers 4 --optimizer sgd --lr 0.05
    shoal runs --sort accuracy
"""

from collections.abc import Mapping

import torch
from torch import Tensor

import shoal
from shoal.strategies.replicas.sync import SyncParts


class SignVote(shoal.ReplicaSync):
    """signSGD with majority vote (Bernstein et al. 2018): every element goes the way that most workers vote for.

    The update has the length of the learning rate in every element, so use a small one: --optimizer sgd --lr 1e-3.
    """

    is_exact = False

    def combine(self, gradients: Mapping[str, Tensor], part: float) -> None:
        """Each worker sends signs; the sign of their sum is the gradient."""
        for gradient in gradients.values():
            gradient.sign_()
            self.group.all_reduce(gradient).wait()
            gradient.sign_()


class Gossip(shoal.ReplicaSync):
    """Gossip averaging on a ring (Lian et al. 2017, D-PSGD): workers update alone, and average with neighbours.

    `neighbours` is an option: the value of --strategy.neighbours is passed by name. With as many as there are other
    workers, all average with all.
    """

    is_exact = False
    replicas_differ = True

    def __init__(self, parts: SyncParts, neighbours: int = 1) -> None:
        super().__init__(parts)
        self._hops = range(1, min(neighbours, self.group.size - 1) + 1)

    def combine(self, gradients: Mapping[str, Tensor], part: float) -> None:
        """The mean over this worker's own samples; a worker without samples has no gradient."""
        for gradient in gradients.values():
            gradient /= part or 1.0

    def mix(self, weights: Mapping[str, Tensor]) -> None:
        """Send all weights `neighbours` ranks around the ring, and average what arrives with one's own.

        Weights are added in the order of ranks: workers with the same neighbours then have the same bits.
        """
        group = self.group
        mine = torch.cat([weight.flatten() for weight in weights.values()])
        arrived = {group.rank: mine}
        for hop in self._hops:
            sent = group.send(mine, (group.rank + hop) % group.size)
            source = (group.rank - hop) % group.size
            arrived[source] = torch.empty_like(mine)
            group.recv(arrived[source], source).wait()
            sent.wait()
        mean = torch.stack([arrived[rank] for rank in sorted(arrived)]).mean(0)
        for weight, part in zip(
            weights.values(), mean.split([w.numel() for w in weights.values()]), strict=True
        ):
            weight.copy_(part.view_as(weight))
