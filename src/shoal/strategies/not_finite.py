"""Sentences about numbers that are not finite: which workers have them, and what to try."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Remedies(NamedTuple):
    """The remedies against bad gradients that the settings of a run allow: hints offer nothing else."""

    clips: bool = True
    """`--clip-norm`, unless it is set already"""
    skips: bool = True
    """`--train.on_nonfinite skip`"""
    exchanges: bool = True
    """`--exchange robust:median`"""

    @property
    def hint(self) -> str:
        """What to try.

        >>> Remedies().hint
        'Try a tenth of the learning rate, --clip-norm 1, or --train.on_nonfinite skip.'
        >>> Remedies(clips=False, skips=False).hint
        'Try a tenth of the learning rate.'
        """
        clip, skip = ", --clip-norm 1" * self.clips, "--train.on_nonfinite skip" * self.skips
        return f"Try a tenth of the learning rate{clip}{', or ' if clip and skip else ' or ' * bool(skip)}{skip}."

    @property
    def against_giants(self) -> str:
        """What to do about a gradient that dominates the others, if that is a fault.

        >>> Remedies(exchanges=False).against_giants
        ': if that is a fault, --clip-norm limits the step'
        """
        found = ["--exchange robust:median tolerates it"] * self.exchanges
        found += ["--clip-norm limits the step"] * self.clips
        return f": if that is a fault, {', and '.join(found)}" if found else ""


ALL_REMEDIES = Remedies()


def workers_of(replica: int, size: int) -> str:
    """The workers of a replica of the model, whose ranks follow each other.

    >>> workers_of(1, size=1), workers_of(1, size=4)
    ('rank 1', 'ranks 4–7')
    """
    return f"rank {replica}" if size == 1 else f"ranks {replica * size}–{(replica + 1) * size - 1}"


def what_is_bad(
    bad: Sequence[int], losses: Sequence[float], squares: Sequence[float], replica_size: int = 1
) -> str:
    """Which replicas' gradients or losses are not finite, and the largest norm of the others.

    A gradient is named before the loss: a worker whose gradient is finite is bad because of its loss.

    >>> what_is_bad([1], [1.0, 1.0, 1.0], [0.25, math.nan, 0.09])
    "the norm of rank 1's gradient is nan (the largest of the others is 0.5)"
    >>> what_is_bad([0], [math.inf, 1.0], [math.nan, 4.0])
    "the norm of rank 0's gradient is nan and its loss inf (the largest of the others is 2)"
    >>> what_is_bad([1], [1.0, 1.0], [0.25, math.nan], replica_size=2)
    "the norm of ranks 2–3's gradient is nan (the largest of the others is 0.5)"
    """
    by_norm = [rank for rank in bad if not math.isfinite(squares[rank])]
    by_loss = [rank for rank in bad if rank not in by_norm]
    parts: list[str] = []
    if by_norm:
        names = " and ".join(f"{workers_of(rank, replica_size)}'s" for rank in by_norm)
        values = " and ".join(_value(losses[rank], squares[rank]) for rank in by_norm)
        parts.append(f"the norm of {names} gradient is {values}")
    parts += [f"{workers_of(rank, replica_size)}'s loss is {losses[rank]:g}" for rank in by_loss]
    good = [math.sqrt(square) for rank, square in enumerate(squares) if rank not in bad]
    others = f" (the largest of the others is {max(good):.3g})" if good else ""
    return " and ".join(parts) + others


def _value(loss: float, square: float) -> str:
    """The norm; also the loss if it is not finite."""
    about_loss = "" if math.isfinite(loss) else f" and its loss {loss:g}"
    return f"{math.sqrt(square):g}{about_loss}"
