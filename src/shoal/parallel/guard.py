"""Numbers that are not finite are caught before they reach the weights, and the worker they came from is named."""

import math
import warnings
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.errors import DivergedError
from shoal.parallel.exchange.exchange import Exchange


class Guard:
    """Each worker measures its own gradients; the losses' all-reduce carries the norms to everyone.

    A worker is *bad* when its loss or the square of its gradient's norm is not finite: NaN, infinity, and numbers so
    large that no optimizer could square them. All workers decide alike, before the update: as many bad ones as the
    exchange `bears` are left to it; more end the run or, by policy, have the step left out.

    Costs one pass over the gradients (a dot product, without a temporary) and no collective of its own; the host reads
    the outcome once per step. What it cannot see are gradients that are wrong and look like others: a flipped sign.
    """

    def __init__(self, group: Group, exchange: Exchange, on_nonfinite: str) -> None:
        self._group = group
        self._exchange = exchange
        self._on_nonfinite = on_nonfinite
        self._square: Tensor | None = None
        self._last_loss: Tensor | None = None
        self._times_bad = Counter[tuple[int, ...]]()

    def look(self, gradient: Tensor) -> None:
        """Measure a gradient of this worker, before it is exchanged."""
        flat = gradient.detach().reshape(-1)
        # In half precision the square of a norm of 256 is already too large.
        flat = flat.float() if flat.element_size() < 4 else flat
        square = flat.dot(flat)
        self._square = square if self._square is None else self._square + square

    def agree(self, loss: Tensor, part: float | None = None) -> tuple[Tensor, bool]:
        """The loss of all workers together, and whether the update may be made; an error names the bad ones.

        `loss` is this worker's summand, and `part` its part of the samples: with it, the loss of the good workers
        stands for the bad ones too. Without it the others' sum is given as it is.
        """
        square = torch.zeros_like(loss) if self._square is None else self._square.to(loss.dtype)
        self._square = None
        square = square + 0 * loss  # a loss that is not finite makes it NaN
        good = square.isfinite()
        told = loss.new_zeros(2 + self._group.size)
        told[0] = torch.where(good, loss, 0)
        told[1] = torch.where(good, 0.0 if part is None else part, 0)
        told[2 + self._group.rank] = square
        self._group.all_reduce(told).wait()

        good_part, *squares = told[1:].tolist()
        bad = tuple(rank for rank, square in enumerate(squares) if not math.isfinite(square))
        if not bad:
            self._last_loss = told[0]
            return told[0], True
        may_update = self._may_update(bad, squares)
        if len(bad) == len(squares) or (part is not None and not good_part):
            # Nobody knows this step's: the last one stands, if there was one.
            return loss.new_tensor(math.nan) if self._last_loss is None else self._last_loss, may_update
        return told[0] / (1.0 if part is None else good_part), may_update

    def _may_update(self, bad: tuple[int, ...], squares: Sequence[float]) -> bool:
        """Whether the exchange bears these bad workers; the policy for those that it does not."""
        bears = self._exchange.bears
        if len(bad) > bears and self._on_nonfinite == "stop":
            borne = f" and the exchange bears {bears}," if bears else ""
            raise DivergedError(
                f"{_norms(bad, squares)}:{borne} stopped before it reached the weights",
                "Try a tenth of the learning rate, --clip-norm 1, or --train.on_nonfinite skip.",
            )
        self._times_bad[bad] += 1
        times = self._times_bad[bad]
        # Every tenfold once more: whoever looks at the end of a log must see that it was not one step.
        if self._group.rank == 0 and math.log10(times).is_integer():
            done = "the rule leaves it aside" if len(bad) <= bears else "the step is left out"
            times_so_far = f" ({times} times so far)" if times > 1 else ""
            warnings.warn(f"{_norms(bad, squares)}: {done}{times_so_far}", stacklevel=3)
        return len(bad) <= bears


def _norms(bad: Sequence[int], squares: Sequence[float]) -> str:
    """Which workers are bad, and what the others' gradients are like.

    >>> _norms([1], [0.25, math.nan, 0.09])
    "the norm of rank 1's gradient is nan (the largest of the others is 0.5)"
    """
    names = " and ".join(f"rank {rank}'s" for rank in bad)
    values = " and ".join(f"{math.sqrt(squares[rank]):g}" for rank in bad)
    good = [math.sqrt(square) for rank, square in enumerate(squares) if rank not in bad]
    others = f" (the largest of the others is {max(good):.3g})" if good else ""
    return f"the norm of {names} gradient is {values}{others}"
