"""Notices workers with unequal numbers of steps at the first step that has no counterpart."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import final

from shoal.comm.group import Group
from shoal.data.division.samplers import epochs_begun
from shoal.errors import MismatchError


@final
class EpochCheck:
    """A barrier before the first exchange of every epoch.

    A worker that has fewer steps begins the next epoch while another one exchanges gradients of the last. The barrier
    then meets that exchange, which is an error on both, instead of a sum of gradients of two epochs.

    An epoch begins where a program calls `set_epoch` of a shoal sampler, as all workers do. No other sign is certain:
    `train()` and `eval()` are often called on rank 0 alone. Costs one barrier per epoch.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._checked = self._begun = epochs_begun()
        self._is_used = False

    def look(self) -> None:
        """Notice that an epoch has begun. In the thread of the training loop; backward may run in another one."""
        self._begun = epochs_begun()

    def skip(self) -> None:
        """Workers may end at different times: there is nothing to check."""
        self._checked = self._begun

    def meet(self) -> None:
        """Before an exchange: if an epoch has begun, wait until it has begun on all workers."""
        if self._begun == self._checked:
            return
        self._checked = self._begun
        self._is_used = True
        with self.explained():
            self._group.barrier().wait()

    @contextmanager
    def explained(self) -> Generator[None]:
        """Around exchanges: an error because of the barrier says what it means."""
        try:
            yield
        except MismatchError as error:
            first, _, table = error.message.partition("\n")
            if not self._is_used or "barrier()" not in table:
                raise
            raise MismatchError(
                "the workers made unequal numbers of steps: some begin an epoch (a barrier after set_epoch), others "
                f"make one more step of the last epoch; {first}\n{table}",
                "Make the same number of steps on all workers: loop over sampler.step_sizes(batch_size) and call "
                "batch(num_samples=0) where a worker has no samples, or run the loop under join().",
            ) from error
