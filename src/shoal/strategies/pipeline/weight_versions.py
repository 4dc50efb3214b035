"""Weight stashing: each micro-batch goes backward with the weights that it went forward with.

While a micro-batch is in flight, the updates of earlier ones change the weights. Its gradient is that of a function
only if both passes use the same weights, so a stage keeps every version that a micro-batch in flight has used:

    stage 0 of 2    F0   F1   B0   U0   F2   B1   U1   F3   B2   U2   B3   U3
    uses version     0    0    0         1    0         2    1         2
    then kept        0    0    0   0,1  0,1   1   1,2  1,2   2   2,3   3    4

Nothing is copied in a forward pass. An update gives the parameters new memory first, if a micro-batch in flight uses
the present one; the old memory then is the stashed version. On the last stage none is in flight, and nothing is copied.
"""

from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager
from typing import final

import torch
from torch import Tensor


@final
class WeightVersions:
    """The versions of a stage's weights that micro-batches in flight have used, and the newest one.

    Costs a copy of the stage's parameters for each update with micro-batches in flight; memory for as many versions as
    there are micro-batches in flight, at most. Not safe: a layer that changes in place what its backward pass needs.
    Torch's check for that counts updates of weights, too, so it is off.
    """

    def __init__(self, params: Iterable[Tensor]) -> None:
        self._params = list(params)
        self._newest = 0
        self._used: dict[int, int] = {}
        """The version that each micro-batch in flight has used."""
        self._stashed: dict[int, list[Tensor]] = {}
        """The values of versions before the newest."""

    @property
    def num_live(self) -> int:
        """The number of versions in memory: those of micro-batches in flight, and the newest."""
        return len(self._stashed) + 1

    def begin(self, microbatch: int) -> AbstractContextManager[object]:
        """The context of a micro-batch's forward pass: it uses the newest weights, and its backward pass will, too."""
        self._used[microbatch] = self._newest
        return self._keeping_memory()

    @staticmethod
    def _keeping_memory() -> AbstractContextManager[object]:
        # Autograd would save the parameters themselves, and find their new memory in the backward pass.
        return torch.autograd.graph.saved_tensors_hooks(Tensor.detach, lambda saved: saved)

    @contextmanager
    def again(self, microbatch: int) -> Generator[None]:
        """The context of a forward pass that is repeated: the parameters have the values that the first one used."""
        stashed = self._stashed.get(self._used[microbatch])
        if stashed is None:
            yield
            return
        newest = [param.data for param in self._params]
        self._set(stashed)
        try:
            with self._keeping_memory():
                yield
        finally:
            self._set(newest)

    def end(self, microbatch: int) -> None:
        """Forget the version of a micro-batch that has gone backward, unless others in flight use it."""
        version = self._used.pop(microbatch)
        if version not in self._used.values():
            self._stashed.pop(version, None)

    def begin_next(self) -> None:
        """Call before an update: it changes the newest weights, and no version that is in use."""
        if self._newest in self._used.values():
            self._stashed[self._newest] = [param.data for param in self._params]
            self._set([param.data.clone() for param in self._params])
        self._newest += 1

    def _set(self, values: list[Tensor]) -> None:
        for param, value in zip(self._params, values, strict=True):
            param.data = value
