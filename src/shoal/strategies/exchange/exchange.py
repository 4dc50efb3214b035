"""The protocol of exchanges: one verb, its guarantees, and the state that an exchange may keep; and the plain sum."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from shoal.comm.algorithms import Algorithm
from shoal.comm.group import Finished, Group, Work
from shoal.strategies.buckets.bucket import Bucket


@runtime_checkable
class Exchange(Protocol):
    """`exchange(group, bucket)`: when its work is done, the bucket holds the aggregate on every worker.

    `bucket.flat` is flat and contiguous, of any length, 0 included. The aggregate stands for the *sum* over the workers
    (each loss is divided by the global number of samples), and has the same bits on all of them. Until the work is
    done the bucket belongs to the exchange, afterwards to the caller. Several exchanges may be in progress at once;
    workers start them in the same order. `contract.py` checks all of this, for our own exchanges and for a user's.

    An exchange may keep state for each bucket, under `bucket.key`, or for each parameter (`ParameterState`): error
    feedback, low-rank factors. `pieces` and `load` put it into checkpoints. It belongs to this worker alone.
    """

    is_sum: bool = False
    """Whether every element becomes the sum of all workers', as precise as its dtype. It may then piggyback."""

    @property
    def tolerates(self) -> int:
        """How many bad workers it tolerates: they may send anything, also numbers that are not finite."""
        return 0

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Start the exchange of one bucket."""
        ...

    def pieces(self) -> dict[str, Tensor]:
        """The state to save, by name; none unless the exchange keeps any."""
        return {}

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Restore what `pieces` returned."""
        del pieces


class Then:
    """The work of an exchange that has more to do when others are over: `wait` or `done` then calls `finish`, once."""

    def __init__(self, works: Sequence[Work], finish: Callable[[], object]) -> None:
        self._works = works
        self._finish: Callable[[], object] | None = finish

    def wait(self) -> None:
        """Wait for the others, and finish."""
        if self._finish is not None:
            for work in self._works:
                work.wait()
            finish, self._finish, self._works = self._finish, None, ()
            finish()

    def done(self) -> bool:
        """Whether the others are over; it is then finished, too."""
        if self._finish is not None and all(work.done() for work in self._works):
            self.wait()
        return self._finish is None


def pieces_under(prefix: str, pieces: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The pieces whose names begin with a prefix, without it: the state of a part of an exchange."""
    return {name.removeprefix(prefix): pieces[name] for name in pieces if name.startswith(prefix)}


@dataclass(frozen=True)
class AllReduce(Exchange):
    """The group's own all-reduce, which may proceed while the caller computes."""

    is_sum = True

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Start it."""
        return group.all_reduce(bucket.flat)


@dataclass(frozen=True)
class By(Exchange):
    """An algorithm on send and recv alone; over when the call returns."""

    algorithm: Algorithm
    is_sum = True

    def __call__(self, group: Group, bucket: Bucket) -> Work:
        """Run it."""
        self.algorithm(group, bucket.flat)
        return Finished()


class ParameterState:
    """What an exchange remembers of each parameter, zero at first; for each bucket one flat tensor.

    After the first step the reducer may plan its buckets again, and a resumed run may use buckets of another size. The
    state of a parameter then moves to its new bucket's flat tensor. Error feedback, for example::

        residual = state.flat(bucket)           # what earlier steps did not send
        bucket.flat.add_(residual)
        sent = compress(bucket.flat)
        torch.sub(bucket.flat, sent, out=residual)

    Where a step may fail halfway, write the next state to `spare`, and `use_spare` when the step is complete.

    The names of its pieces are the parameters'.

    >>> from shoal.strategies.buckets.bucket import Bucket
    >>> state = ParameterState()
    >>> _ = state.flat(Bucket.of("fc.bias", torch.zeros(3))).fill_(7)
    >>> state.pieces()
    {'fc.bias': tensor([7., 7., 7.])}
    """

    def __init__(self) -> None:
        self._flats: dict[str, tuple[frozenset[str], Tensor]] = {}
        self._spares: dict[str, Tensor] = {}
        self._of_param: dict[str, Tensor] = {}

    def flat(self, bucket: Bucket) -> Tensor:
        """The state of a bucket's parameters, in the order of its gradients; write to it in place."""
        if bucket.key in self._flats:
            return self._flats[bucket.key][1]
        flat = torch.zeros_like(bucket.gradients)
        for name, view in zip(bucket.names, bucket.split(flat), strict=True):
            if name in self._of_param:
                view.copy_(self._of_param[name])
            self._of_param[name] = view
        # A bucket that held one of these parameters no longer exists.
        names = frozenset(bucket.names)
        self._flats = {key: (held, old) for key, (held, old) in self._flats.items() if not held & names}
        self._spares = {key: spare for key, spare in self._spares.items() if key in self._flats}
        self._flats[bucket.key] = names, flat
        return flat

    def spare(self, bucket: Bucket) -> Tensor:
        """Memory for the next state of a bucket, like `flat`; it holds nothing of use."""
        flat = self.flat(bucket)
        if bucket.key not in self._spares:
            self._spares[bucket.key] = torch.empty_like(flat)
        return self._spares[bucket.key]

    def use_spare(self, bucket: Bucket) -> None:
        """Make the spare memory the state; the old state's memory becomes the spare."""
        names, flat = self._flats[bucket.key]
        spare = self._spares[bucket.key]
        self._flats[bucket.key], self._spares[bucket.key] = (names, spare), flat
        self._of_param.update(zip(bucket.names, bucket.split(spare), strict=True))

    def held(self) -> list[Tensor]:
        """All its memory: the states and the spares."""
        return [*(flat for _, flat in self._flats.values()), *self._spares.values()]

    def pieces(self) -> dict[str, Tensor]:
        """The state of every parameter, in the parameter's shape."""
        return dict(self._of_param)

    def load(self, pieces: Mapping[str, Tensor]) -> None:
        """Replace the state of all parameters."""
        self._flats.clear()
        self._spares.clear()
        self._of_param = {name: piece.clone() for name, piece in pieces.items()}
