"""Each worker's own random state: dropout draws other masks on every worker, and the same under every launcher."""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shoal.data.seeds import seed_for
from shoal.parallel.piece import Piece

_ONE_AT_A_TIME = threading.Lock()


class RandomState:
    """Torch's generators as one worker sees them. Nothing of ours draws from them; a user's dropout does.

    All workers build the model from the same seed. Then rank 0 continues as one machine does, and every other rank is
    seeded by (seed, rank). A process has torch's generators to itself. Threads share them, so inside `with` a worker
    that is a thread swaps its own state in for each operation that draws. That costs microseconds per operation, so it
    ends with the first step if the model has drawn nothing in it. (Generators of GPUs stay shared by threads.)
    """

    def __init__(self, seed: int, rank: int, shared_by_threads: bool) -> None:
        self._seed, self._rank = seed, rank
        self._swap = _Swap(_state_of(seed)) if shared_by_threads else None
        self._stack = ExitStack()

    def __enter__(self) -> "RandomState":
        if self._swap is not None:
            self._stack.enter_context(self._swap)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def begin_training(self) -> None:
        """From now on this worker draws other numbers than the others."""
        if self._swap is not None:
            self._swap.has_drawn = False
        if self._rank > 0:
            seed = seed_for("worker", self._seed, self._rank)
            self._set({"cpu": _state_of(seed)})
            if torch.cuda.is_available() and self._swap is None:
                torch.cuda.manual_seed(seed)

    def after_step(self) -> None:
        """Stop swapping, if the model has drawn nothing."""
        if self._swap is not None and not self._swap.has_drawn:
            self._stack.close()

    def pieces(self) -> list[Piece]:
        """The state, saved by each worker for itself."""
        states = {"cpu": self._swap.state if self._swap is not None else torch.get_rng_state()}
        if torch.cuda.is_available() and self._swap is None:
            states["cuda"] = torch.cuda.get_rng_state()
        return [Piece.whole(self._name(kind), state) for kind, state in states.items()]

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Go on with the saved state of this rank; a rank that saved none keeps its seed."""
        self._set({kind: saved[self._name(kind)] for kind in ("cpu", "cuda") if self._name(kind) in saved})

    def _set(self, states: Mapping[str, Tensor]) -> None:
        if "cpu" in states and self._swap is not None:
            self._swap.state = states["cpu"]
        elif "cpu" in states:
            torch.set_rng_state(states["cpu"])
        if "cuda" in states and torch.cuda.is_available() and self._swap is None:
            torch.cuda.set_rng_state(states["cuda"])

    def _name(self, kind: str) -> str:
        return f"random.{kind}" + (f".rank{self._rank}" if self._rank else "")


def _state_of(seed: int) -> Tensor:
    """The state of torch's generator on the host after `torch.manual_seed(seed)`."""
    return torch.Generator().manual_seed(seed).get_state()


class _Swap(TorchDispatchMode):
    """Runs each operation that draws random numbers on the host with a state of this thread's own."""

    def __init__(self, state: Tensor) -> None:
        super().__init__()
        self.state = state
        self.has_drawn = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        with _ONE_AT_A_TIME:
            self.has_drawn = True
            torch.set_rng_state(self.state)
            try:
                return func(*args, **(kwargs or {}))
            finally:
                self.state = torch.get_rng_state()
