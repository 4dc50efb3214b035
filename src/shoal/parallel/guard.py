"""Numbers that are not finite are caught before they reach the weights, and the worker they came from is named."""

import warnings

from torch import Tensor

from shoal.comm.group import Group
from shoal.errors import DivergedError


def is_finite(tensor: Tensor) -> bool:
    """Whether every number is finite; one pass over memory and no temporary, unless there is a suspicion.

    >>> is_finite(torch.ones(3)), is_finite(torch.tensor([1.0, float("nan")]))
    (True, False)
    """
    # A sum of finite numbers can overflow; only then is each of them looked at.
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


class Guard:
    """Each worker looks at its own gradients; the losses' all-reduce carries what it found to everyone.

    All workers then decide alike, before the update: as many bad workers as the exchange `bears` are left to it; more
    end the run or, by policy, have the step left out. No collective of its own.
    """

    def __init__(self, group: Group, bears: int, on_nonfinite: str) -> None:
        self._group = group
        self._bears = bears
        self._on_nonfinite = on_nonfinite
        self._own_is_bad = False
        self._named: set[tuple[int, ...]] = set()

    def look(self, gradient: Tensor) -> None:
        """Look at a gradient of this worker, before it is exchanged."""
        self._own_is_bad = self._own_is_bad or not is_finite(gradient)

    def agree(self, loss: Tensor) -> tuple[Tensor, bool]:
        """The loss summed over the good workers, and whether the update may be made; an error names the bad ones."""
        told = loss.new_zeros(1 + self._group.size)
        if self._own_is_bad or not is_finite(loss):
            told[1 + self._group.rank] = 1
        else:
            told[0] = loss
        self._own_is_bad = False
        self._group.all_reduce(told).wait()
        bad = tuple(rank for rank, flag in enumerate(told[1:].tolist()) if flag)
        return told[0], not bad or self._may_go_on(bad)

    def _may_go_on(self, bad: tuple[int, ...]) -> bool:
        ranks = f"rank {bad[0]}" if len(bad) == 1 else f"ranks {', '.join(map(str, bad))}"
        bears = f", and the exchange bears {self._bears}" if self._bears else ""
        if len(bad) > self._bears and self._on_nonfinite == "stop":
            raise DivergedError(
                f"the gradients of {ranks} are not finite{bears}: stopped before they reached the weights",
                "Try a tenth of the learning rate, --clip-norm 1, or --train.on_nonfinite skip.",
            )
        if bad not in self._named:
            self._named.add(bad)
            what = "the rule leaves them aside" if len(bad) <= self._bears else "such steps are left out"
            warnings.warn(f"the gradients of {ranks} are not finite: {what}", stacklevel=3)
        return len(bad) <= self._bears
