"""Who watches a run: a display, a test, a lab. The worker tells; it never draws."""

from typing import Protocol

from shoal.config.schema import RunConfig
from shoal.events.folder import RunFolder
from shoal.train.evaluate import Metrics
from shoal.train.progress import Progress


class Observer(Protocol):
    """Is told what happens, in the worker's thread: keep it short."""

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Everything is built; the first step follows."""
        ...

    def stepped(self, progress: Progress, loss: float) -> None:
        """One or, on a GPU, several steps have been done."""
        ...

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """An epoch is over; metrics on the validation set, if there is one."""
        ...


class Silent:
    """Watches nothing."""

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Nothing."""

    def stepped(self, progress: Progress, loss: float) -> None:
        """Nothing."""

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """Nothing."""
