"""Numbers that are not finite are caught before they reach the weights, and the worker they came from is named."""

import math
import warnings
from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from shoal.comm.group import Group
from shoal.errors import DivergedError
from shoal.parallel.exchange.exchange import Exchange

GIANT = 1e4
"""A gradient so many times as long as all others is mentioned. It may be right: they may have nothing left to learn."""

ROW = 3
"""What a worker tells: its loss, its part of the samples, the square of its gradient's norm."""


class Guard:
    """Each worker measures its own gradients; the losses' all-reduce carries the norms to everyone.

    A worker is *bad* when its loss or the square of its gradient's norm is not finite: NaN, infinity, and numbers so
    large that no optimizer could square them. All workers decide alike, before the update: as many bad ones as the
    exchange `tolerates` are left to it; more end the run or, by policy, have the step left out.

    Costs one pass over the gradients (a dot product, without a temporary) and no collective of its own; the host reads
    the outcome once per step. A gradient that is finite and far longer than all others is mentioned, no more. What
    the guard cannot see are gradients that are wrong and look like others: a flipped sign.
    """

    def __init__(self, group: Group, exchange: Exchange, on_nonfinite: str) -> None:
        self._group = group
        self._exchange = exchange
        self._on_nonfinite = on_nonfinite
        self._square: Tensor | None = None
        self._last_loss = math.nan
        self._times_bad = Counter[tuple[int, ...]]()
        self._giants = set[int]()

    def look(self, gradient: Tensor) -> None:
        """Measure a gradient of this worker, before it is exchanged."""
        flat = gradient.detach().reshape(-1)
        # In half precision the square of a norm of 256 is already too large.
        flat = flat.float() if flat.element_size() < 4 else flat
        square = flat.dot(flat)
        self._square = square if self._square is None else self._square + square

    def agree(self, loss: Tensor, part: float = 1.0) -> tuple[Tensor, bool]:
        """The loss of all workers together, and whether the update may be made; an error names the bad ones.

        `loss` is this worker's summand and `part` its part of the samples: where some workers are bad, the loss of the
        others stands for them too.
        """
        table = loss.new_empty((self._group.size, ROW))
        self.write(table, loss, part)
        self._group.all_reduce(table).wait()
        return self.read(table, loss)

    def write(self, table: Tensor, loss: Tensor, part: float) -> None:
        """This worker's row of the table; the others' are zero here, so that the sum over the workers is the table.

        For callers that sum it together with something else, and then `read` it.
        """
        table.zero_()
        mine = table[self._group.rank]
        mine[0], mine[1] = loss, part
        if self._square is not None:
            mine[2], self._square = self._square, None

    def read(self, table: Tensor, like: Tensor) -> tuple[Tensor, bool]:
        """What `agree` gives, from everyone's rows; the loss is a tensor like this one."""
        rows: list[list[float]] = table.tolist()
        squares = [square if math.isfinite(loss) else math.nan for loss, _, square in rows]
        bad = tuple(rank for rank, square in enumerate(squares) if not math.isfinite(square))
        good_loss = math.fsum(loss for rank, (loss, _, _) in enumerate(rows) if rank not in bad)
        if not bad:
            self._mention_giant(squares)
            self._last_loss = good_loss
            return like.new_tensor(good_loss), True
        may_update = self._may_update(bad, squares)
        good_part = math.fsum(part for rank, (_, part, _) in enumerate(rows) if rank not in bad)
        all_parts = math.fsum(part for _, part, _ in rows)
        # Where nobody knows this step's loss, the last one stands.
        standing = good_loss * all_parts / good_part if good_part else self._last_loss
        return like.new_tensor(standing), may_update

    def _may_update(self, bad: tuple[int, ...], squares: Sequence[float]) -> bool:
        """Whether the exchange tolerates these bad workers; the policy for those that it does not."""
        tolerates = self._exchange.tolerates
        if len(bad) > tolerates and self._on_nonfinite == "stop":
            borne = f" and the exchange tolerates {tolerates}," if tolerates else ""
            raise DivergedError(
                f"{_norms(bad, squares)}:{borne} stopped before it reached the weights",
                "Try a tenth of the learning rate, --clip-norm 1, or --train.on_nonfinite skip.",
            )
        self._times_bad[bad] += 1
        times = self._times_bad[bad]
        # Every tenfold once more: whoever looks at the end of a log must see that it was not one step.
        if self._group.rank == 0 and math.log10(times).is_integer():
            done = "the rule leaves it aside" if len(bad) <= tolerates else "the step is left out"
            times_so_far = f" ({times} times so far)" if times > 1 else ""
            warnings.warn(f"{_norms(bad, squares)}: {done}{times_so_far}", stacklevel=3)
        return len(bad) <= tolerates

    def _mention_giant(self, squares: Sequence[float]) -> None:
        """Say once of a worker that its gradient dwarfs the others': the sum is then its own."""
        largest = max(squares)
        rank = squares.index(largest)
        others = max([*squares[:rank], *squares[rank + 1 :]], default=0.0)
        if largest > GIANT**2 * others > 0 and rank not in self._giants and not self._exchange.tolerates:
            self._giants.add(rank)
            if self._group.rank == 0:
                warnings.warn(
                    f"the norm of rank {rank}'s gradient is {math.sqrt(largest):.3g}, and the largest of the others "
                    f"{math.sqrt(others):.3g}: if that is a fault, --exchange robust:median tolerates it",
                    stacklevel=3,
                )


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
