"""A random state per worker: dropout masks differ between shares of a batch, and do not depend on the launcher."""

import threading
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any, final

import torch
from torch import Tensor, _ops
from torch.utils._python_dispatch import TorchDispatchMode

from shoal.data.division import ByLeaves
from shoal.data.seeds import ONE_AT_A_TIME, generator_for, seed_for
from shoal.strategies.pieces.piece import Piece
from shoal.training.hooks.hook import Hook
from shoal.training.progress import Progress

DREW_LATE = (
    "the model drew its first random numbers after the first step, from the generator that thread workers share: "
    "this run cannot be repeated bit by bit. Use --launcher processes."
)
_MAKING = threading.RLock()
"""Held while an operator's object is made; its namespace may be made within."""


class RandomState(Hook):
    """The state of torch's generators for one worker. Shoal does not draw from them; a model's dropout does.

    Rank 0 starts from the run's seed, as one machine does; every other rank from a seed derived from (seed, rank).
    Workers that divide layers (the tensor axis of the mesh) draw the same masks in what they do not divide: they count
    as one rank, of which each has a `copy`.
    A process has torch's generators to itself. Threads share them, so inside `with` a thread worker swaps its own state
    in for each operation that draws. That costs microseconds per operation, so it stops after the first step if the
    model draws nothing; a model that begins to draw later is noticed. (Threads still share the generators of GPUs.)
    """

    def __init__(self, seed: int, rank: int, shared_by_threads: bool, copy: int = 0) -> None:
        self._rank, self._copy = rank, copy
        self.shared_by_threads = shared_by_threads
        self._stack = ExitStack()
        own_seed = seed_for("worker", seed, rank) if rank else seed
        state = torch.Generator().manual_seed(own_seed).get_state()
        self._swap = _Swap(state) if shared_by_threads else None
        self._untouched: Tensor | None = None
        """The state of torch's generator when swapping stopped."""
        if self._swap is None:
            torch.set_rng_state(state)
            if torch.cuda.is_available():
                torch.cuda.manual_seed(own_seed)

    def __enter__(self) -> "RandomState":
        if self._swap is not None:
            self._stack.enter_context(self._swap)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def after_step(self, step: int, num_samples: int) -> None:
        """Stop swapping, if the model has drawn nothing for any sample; swap again, if it draws after all."""
        if self._swap is None or self._swap.has_drawn:
            return
        with ONE_AT_A_TIME:  # then no thread has swapped its own state in
            shared = torch.get_rng_state()
        if self._untouched is None and num_samples:
            self._stack.close()
            self._untouched = shared
        elif self._untouched is not None and not torch.equal(shared, self._untouched):
            if not self._rank:
                warnings.warn(DREW_LATE, stacklevel=2)
            self._swap.has_drawn = True
            self._stack.enter_context(self._swap)

    def restart(self, *purpose: int | str) -> None:
        """Draw from now on what follows from the purpose alone, on the host."""
        if self._swap is not None:
            self._swap.state = generator_for(*purpose).get_state()
        else:
            torch.default_generator.manual_seed(seed_for(*purpose))

    def pieces(self) -> list[Piece]:
        """The state of this worker; each rank saves its own."""
        states = {"cpu": self._swap.state if self._swap is not None else torch.get_rng_state()}
        if torch.cuda.is_available() and self._swap is None:
            states["cuda"] = torch.cuda.get_rng_state()
        return [Piece.whole(self._name(kind), state, self._copy) for kind, state in states.items()]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Restore the saved state of this rank; without one, keep the seed."""
        states = {kind: saved[self._name(kind)] for kind in ("cpu", "cuda") if self._name(kind) in saved}
        if "cpu" in states and self._swap is not None:
            self._swap.state = states["cpu"]
        elif "cpu" in states:
            torch.set_rng_state(states["cpu"])
        if "cuda" in states and torch.cuda.is_available() and self._swap is None:
            torch.cuda.set_rng_state(states["cuda"])

    def _name(self, kind: str) -> str:
        return f"random.{kind}" + (f".rank{self._rank}" if self._rank else "")


class _Swap(TorchDispatchMode):
    """Runs each operation that draws random numbers on the host with this thread's state."""

    def __init__(self, state: Tensor) -> None:
        super().__init__()
        make_operator_objects_once()
        self.state = state
        self.has_drawn = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: keeping the compiler away would import it in every run, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags or _has_own_generator(args, kwargs or {}):
            return func(*args, **(kwargs or {}))
        with ONE_AT_A_TIME:
            self.has_drawn = True
            shared = torch.get_rng_state()
            torch.set_rng_state(self.state)
            try:
                return func(*args, **(kwargs or {}))
            finally:
                self.state = torch.get_rng_state()
                torch.set_rng_state(shared)


def _has_own_generator(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation was given a generator that is not torch's own, as for the order of the samples.

    An operation is given a new object for the generator; its address is the same.
    """
    given: list[Any] = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Generator)]
    shared: Any = torch.default_generator
    return any(each._cdata != shared._cdata for each in given)


@cache
def make_operator_objects_once() -> None:
    """From now on, a thread waits while another makes the Python object of an operator, and takes that one.

    Within a dispatch mode torch looks an operator's object up in `torch.ops`, which makes it at the first request, and
    keeps a pointer to it without a reference. Two threads can each make one: `torch.ops` keeps the second, the first is
    freed, and the pointer to it crashes the process (seen with torch 2.13).
    """

    def guard(kind: Any) -> None:
        make = kind.__getattr__

        def take_or_make(self: Any, name: str) -> Any:
            with _MAKING:
                made = vars(self)
                return made[name] if name in made else make(self, name)

        kind.__getattr__ = take_or_make

    for kind in (_ops._OpNamespace, _ops.OpOverloadPacket):  # pyright: ignore[reportPrivateUsage]
        guard(kind)


@final
class LeafSeeds(Hook):
    """Where workers divide the leaves of one tree, a leaf's random numbers follow from (seed, step, leaf).

    Its dropout masks then do not depend on which worker computes it.
    """

    def __init__(self, random: RandomState, seed: int, division: ByLeaves, rank: int) -> None:
        self._random, self._seed, self._division, self._rank = random, seed, division, rank
        self._step = self._first = 0

    def before_step(self, progress: Progress, num_samples: int) -> None:
        """Find this worker's first leaf."""
        self._step = progress.step
        self._first = self._division.first_leaf(progress.consumed, num_samples, self._rank)

    def before_part(self, part: int) -> None:
        """Seed the next leaf."""
        self._random.restart("leaf", self._seed, self._step, self._first + part)
