"""The guard: prevents numbers that are not finite from reaching the weights, and names the worker that sent them."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.comm.group import Group
from shoal.errors import ConfigError, DivergedError, NothingCountedError
from shoal.strategies.exchange.exchange import Exchange
from shoal.strategies.loss_scale import LossScale
from shoal.strategies.not_finite import ALL_REMEDIES, Remedies, what_is_bad, workers_of
from shoal.strategies.strategy import Share

GIANT = 1e4
"""Warn of a gradient this many times longer than all others. It may be correct, if the others have converged."""

TotalOfRows = Callable[[Sequence[float], Tensor], float]
"""The sum of one number of every worker; the tensor has the precision of these numbers."""


def exact_total(rows: Sequence[float], like: Tensor) -> float:
    """The sum of one number of every worker, rounded once."""
    del like
    return math.fsum(rows)


def square_of(gradient: Tensor) -> Tensor:
    """The square of a gradient's norm: not finite if an element is not, or is too large to be squared."""
    if gradient.layout is not torch.strided:
        raise ConfigError(
            f"a gradient of shape {tuple(gradient.shape)} is sparse, but workers exchange dense gradients",
            "Build the layer with sparse=False.",
        )
    flat = gradient.detach() if gradient.requires_grad else gradient
    flat = torch.view_as_real(flat) if flat.is_complex() else flat
    flat = flat if flat.dim() == 1 else flat.reshape(-1)
    # In half precision, the square of a norm of 256 overflows.
    flat = flat.float() if flat.element_size() < 4 else flat
    return flat.dot(flat)


def repeated(times: int) -> str | None:
    """The end of a warning, the first time and again after 10, 100, … times: the end of a log shows it. Else None."""
    if not math.log10(times).is_integer():
        return None
    return f" ({times} times so far)" if times > 1 else ""


class GuardRow(NamedTuple):
    """A worker's report of a step: a row of the table. Numbers that are on a GPU stay there."""

    loss: float | Tensor
    """Its summand of the loss of all workers."""
    part: float | Tensor
    """Its part of the samples; of a loss that counts, its count."""
    square: float | Tensor
    """The squared norm of its gradient."""
    stop_signal: float | Tensor


ROW = len(GuardRow._fields)
"""Numbers of a row."""


class GuardVerdict(NamedTuple):
    """The decision, which all workers derive from the same table."""

    loss: Tensor
    may_update: bool
    stop_signal: int
    scale: float | None = None
    """Of a loss that counts, the samples / the count of all workers: gradients and losses lack this factor."""


class LaterVerdict(NamedTuple):
    """The decision on the device, and on the host later."""

    loss: Tensor
    is_bad: Tensor
    """1 if a number is bad, 0 if not."""
    scale: Tensor | None
    settle: Callable[[], int]
    """Decides on the host, as `decide`; returns the stop signal."""


class Guard:
    """Prevents numbers that are not finite from reaching the weights, and names the worker that sent them.

    Each worker measures its own gradients; the table of losses and norms travels with an exchange of the step. A
    worker is *bad* when its loss or the square of its gradient's norm is not finite: NaN, infinity, and numbers so
    large that no optimizer could square them. All workers decide the same, before the update: as many bad ones as the
    exchange `tolerates` are left to it; more end the run or, by policy, have the step left out. A request to stop
    training travels in the same table.

    Phase 1, `look`: measure the gradients. Phase 2, `row`: report them; a sync brings the rows of all workers together.
    Phase 3, `decide`. `agree` does phases 2 and 3 with an all-reduce, for syncs without another message to go with. A
    table that is summed with a message is filled by `write`.

    Costs one pass over the gradients (a dot product, without a temporary) and no collective of its own. A gradient that
    is finite and far longer than all others gets a warning. The guard cannot see gradients that are wrong and look like
    others: a flipped sign.
    """

    def __init__(
        self,
        group: Group,
        exchange: Exchange,
        on_nonfinite: str,
        sharded_over: Sequence[Group] = (),
        remedies: Remedies = ALL_REMEDIES,
        total: TotalOfRows = exact_total,
        loss_scale: LossScale | None = None,
        count_of_share: Callable[[], Tensor | float] | None = None,
        in_step: bool = False,
    ) -> None:
        """`group` has one worker of each replica; `total` sums the losses of all workers.

        `count_of_share` is this worker's count (`Layout.take_count`), of a loss that counts. With `in_step` no host may
        read a table later: workers on a GPU and on a CPU have to stop after the same step.
        """
        self.loss_scale = loss_scale
        """The factor that a step may overflow with (`--precision fp16`)."""
        self.count_of_share = count_of_share
        self._in_step = in_step
        self._num_samples = 1
        """Of all workers in the last step: what losses and gradients are divided by."""
        self._total = total
        self._group = group
        self._replica_size = math.prod(each.size for each in sharded_over)
        self._remedies = remedies
        self._exchange = exchange
        self._on_nonfinite = on_nonfinite
        self._sharded_over = sharded_over
        self._square: float | Tensor | None = None
        self._last_loss = math.nan
        self._times_bad = Counter[tuple[int, ...]]()
        self._times_giant = Counter[int]()

    @property
    def can_wait(self) -> bool:
        """Whether the host may read a table some steps later: only if a bad number ends the run."""
        ends_run = self._on_nonfinite == "stop" and not self._exchange.tolerates and self.loss_scale is None
        return ends_run and not self._in_step

    def look(self, *gradients: Tensor) -> None:
        """Measure gradients of this worker, before they are exchanged."""
        for gradient in gradients:
            square = square_of(gradient)
            # Numbers are added in less time than tensors; on a GPU the host would wait for them.
            number = square.item() if square.is_cpu else square
            self._square = number if self._square is None else self._square + number

    @property
    def sees_finite(self) -> bool:
        """Whether all gradients that this worker has measured since its last report are finite."""
        return self._square is None or math.isfinite(self._square)

    def row(self, loss: Tensor, share: Share) -> GuardRow:
        """This worker's report; `loss` is its summand. The next `look` begins anew."""
        square, self._square = 0.0 if self._square is None else self._square, None
        part: float | Tensor = share.num_samples / share.num_samples_global
        if self.count_of_share is not None:
            self._num_samples = share.num_samples_global
            part = self.count_of_share()
            part = part.item() if isinstance(part, Tensor) and part.is_cpu else part
        if self._sharded_over:
            return self._over_replica(loss, part, square, share.stop_signal)
        return GuardRow(loss.item() if loss.is_cpu else loss, part, square, share.stop_signal)

    def _over_replica(
        self, loss: Tensor, part: float | Tensor, square: float | Tensor, stop_signal: int
    ) -> GuardRow:
        """The row of a replica that is divided among workers: losses, squares and counts add up.

        Any stop signal counts.
        """

        def number(value: float | Tensor) -> Tensor:
            return value.to(loss.dtype) if isinstance(value, Tensor) else loss.new_tensor(value)

        counts = [] if self.count_of_share is None else [number(part)]
        mine = torch.stack((loss, number(square), loss.new_full((), stop_signal), *counts))
        for group in self._sharded_over:
            rows = mine.new_zeros((group.size, len(mine)))
            rows[group.rank] = mine
            group.all_reduce(rows).wait()
            mine = torch.stack(
                (
                    rows[:, 0].sum(),
                    rows[:, 1].sum(),
                    rows[:, 2].max(),
                    *(each.sum() for each in rows[:, 3:].T),
                )
            )
        total, square, stopped, *counts = mine.tolist() if mine.is_cpu else mine.unbind()
        return GuardRow(total, counts[0] if counts else part, square, stopped)

    def write(self, table: Tensor, loss: Tensor, share: Share) -> None:
        """Write this worker's row and zeros in the others, so that the sum over the workers is the table."""
        row, rank = self.row(loss, share), self._group.rank
        if table.is_cpu:
            if row.square > torch.finfo(table.dtype).max:
                row = row._replace(square=math.inf)  # numpy would warn that it becomes infinite there
            # Through numpy: assigning to elements of a tensor takes ten times as long, in every step.
            numbers = table.numpy()
            numbers.fill(0)
            numbers[rank] = row
        else:
            table.zero_()
            mine = table[rank]
            mine[0], mine[1], mine[2], mine[3] = row

    def agree(self, loss: Tensor, share: Share) -> GuardVerdict:
        """Report, sum the table over the workers, and decide; `loss` is this worker's summand."""
        table = loss.new_empty((self._group.size, ROW))
        self.write(table, loss, share)
        self._group.all_reduce(table).wait()
        return self.decide(table.tolist(), loss)

    def decide(self, rows: Sequence[Sequence[float]], like: Tensor, is_alone: bool = False) -> GuardVerdict:
        """Decide from the rows of all workers; an error names the bad ones. The loss is a tensor like this one.

        Where some workers are bad, the loss of the others stands for them too. A worker that decides alone, from its
        row and the last ones of others, warns itself; otherwise rank 0 warns for all.
        """
        losses, parts, squares, stop_signals = zip(*rows, strict=True)
        stop_signal = int(max(stop_signals))
        bad = _bad(losses, squares)
        scale, count = None, math.fsum(parts)
        if self.count_of_share is not None and not bad and count <= 0:
            return self._without_count(like, stop_signal, warns=is_alone or self._group.rank == 0)
        if self.count_of_share is not None and count > 0:
            scale = self._num_samples / count
        if not bad:
            self._mention_giant(squares)
            self._last_loss = self._total(losses, like)
            if scale is not None:
                self._last_loss *= scale
            if self.loss_scale is not None:
                self.loss_scale.was_finite()
            return GuardVerdict(like.new_full((), self._last_loss), True, stop_signal, scale)
        what, hint = what_is_bad(bad, losses, squares, self._replica_size), self._remedies.hint
        # With finite losses it was backward that overflowed.
        if self.loss_scale is not None and math.isfinite(sum(losses)):
            if self.loss_scale.overflowed():
                total = self._total(losses, like) * (scale or 1.0)
                return GuardVerdict(like.new_full((), total), False, stop_signal)
            what += f", and float16 overflows even at a loss scale of {self.loss_scale.factor:.1g}"
            hint = "Use --precision bf16."
        may_update = self._may_update(bad, what, hint, warns=is_alone or self._group.rank == 0)
        good_loss = self._total([0.0 if rank in bad else loss for rank, loss in enumerate(losses)], like)
        good_part = math.fsum(part for rank, part in enumerate(parts) if rank not in bad)
        # Where no worker has a finite loss, the last one stands.
        standing = good_loss * (scale or 1.0) * count / good_part if good_part else self._last_loss
        return GuardVerdict(like.new_full((), standing), may_update, stop_signal, scale)

    def _without_count(self, like: Tensor, stop_signal: int, warns: bool) -> GuardVerdict:
        """The decision where there is nothing to divide by: the policy decides."""
        what = "the count of the loss is 0 for all samples of a step"
        if self._on_nonfinite == "stop":
            raise NothingCountedError(
                what, "Leave such samples out of the data, or the step: --train.on_nonfinite skip."
            )
        self._times_bad[()] += 1
        times_so_far = repeated(self._times_bad[()])
        if warns and times_so_far is not None:
            warnings.warn(f"{what}: the step is left out{times_so_far}", stacklevel=3)
        standing = self._last_loss if math.isfinite(self._last_loss) else 0.0
        return GuardVerdict(like.new_full((), standing), False, stop_signal)

    def decide_later(self, table: Tensor, like: Tensor) -> LaterVerdict:
        """Decide on the device, and on the host later.

        For an update that the device itself can leave out, so that the host does not wait in every step.
        """
        rows = table.clone()  # the table's memory belongs to the next step
        loss, is_bad, scale = rows[:, 0].sum(), (~rows[:, (0, 2)].isfinite()).any(), None
        if self.count_of_share is not None:
            scale = self._num_samples / rows[:, 1].sum()
            loss, is_bad = loss * scale, is_bad | ~scale.isfinite()
        return LaterVerdict(
            loss, is_bad.to(torch.float32), scale, lambda: self.decide(rows.tolist(), like).stop_signal
        )

    def _may_update(self, bad: tuple[int, ...], what: str, hint: str, warns: bool) -> bool:
        """Whether the exchange tolerates these bad workers; if not, the policy decides. One worker `warns` for all."""
        tolerates = self._exchange.tolerates
        if len(bad) > tolerates and self._on_nonfinite == "stop":
            limit = f" (the exchange tolerates {tolerates})" if tolerates else ""
            raise DivergedError(f"{what}{limit}: stopped before it reached the weights", hint)
        self._times_bad[bad] += 1
        times_so_far = repeated(self._times_bad[bad])
        if warns and times_so_far is not None:
            done = "the exchange leaves it out" if len(bad) <= tolerates else "the step is left out"
            warnings.warn(f"{what}: {done}{times_so_far}", stacklevel=3)
        return len(bad) <= tolerates

    def _mention_giant(self, squares: Sequence[float]) -> None:
        """Warn of a worker whose gradient dominates the sum."""
        *_, others, largest = 0.0, *sorted(squares)
        if not largest > GIANT**2 * others > 0 or self._exchange.tolerates:
            return
        rank = squares.index(largest)
        self._times_giant[rank] += 1
        times_so_far = repeated(self._times_giant[rank])
        if self._group.rank == 0 and times_so_far is not None:
            name = workers_of(rank, self._replica_size)
            warnings.warn(
                f"the norm of {name}'s gradient is {math.sqrt(largest):.3g}, and the largest of the others "
                f"{math.sqrt(others):.3g}{times_so_far}{self._remedies.against_giants}",
                stacklevel=3,
            )


def _bad(losses: Sequence[float], squares: Sequence[float]) -> tuple[int, ...]:
    """The replicas whose loss or gradient is not finite."""
    if math.isfinite(sum(losses) + sum(squares)):
        return ()  # nearly always, and asked in every step
    return tuple(
        rank
        for rank, (loss, square) in enumerate(zip(losses, squares, strict=True))
        if not (math.isfinite(loss) and math.isfinite(square))
    )
