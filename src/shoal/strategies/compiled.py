"""`--compile`: the forward and backward of a model, compiled by `torch.compile`."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError
from shoal.events.spans import Kind


@final
class Compiled:
    """A model whose calls are compiled; parameters, buffers and hooks are the model's own.

    Torch compiles at the first call of forward and of backward, and anew for sizes of a kind that it has not seen. The
    model itself stays as it is: an evaluation computes without compiled code, and names do not change.

    Cost: seconds for the first step. Fused operations round differently: the result equals the model's within
    tolerance, not in every bit. All gradients of a compiled backward become final together, at its end, so their
    exchange no longer overlaps with it.
    """

    def __init__(self, model: nn.Module, name: str) -> None:
        """`name` is the model's, for errors."""
        self._name = name
        self._call: Callable[..., Tensor] = torch.compile(model)
        self._sizes = set[int]()

    def kind(self, num_samples: int) -> Kind:
        """What a step of so many samples does: it compiles if it is the first of this size."""
        # Torch tells no caller whether it has compiled. A size seen for the first time may only repeat code for any
        # size: its seconds are then left out of the training time once.
        if num_samples in self._sizes:
            return "compute"
        self._sizes.add(num_samples)
        return "compile"

    def __call__(self, *args: object, **kwargs: object) -> Tensor:
        """The model's outputs."""
        with self.explained():
            return self._call(*args, **kwargs)

    @contextmanager
    def explained(self) -> Generator[None]:
        """Inside, an error of the compiler becomes one sentence."""
        try:
            yield
        except Exception as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConfigError(
                f"torch.compile cannot compile model {self._name}: {reason}",
                "On a CPU it needs a C++ compiler, such as g++; or leave --compile out.",
            ) from error
