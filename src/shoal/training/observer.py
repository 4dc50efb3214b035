"""Callbacks of a run, for a display, a test or a lab."""

from typing import Protocol

from shoal.config.schema import RunConfig
from shoal.events.folder import RunFolder
from shoal.training.evaluation import Metrics
from shoal.training.progress import Progress


class Observer(Protocol):
    """The callbacks. They run in the worker's thread, so they should return quickly."""

    @property
    def wants_every_step(self) -> bool:
        """Whether `stepped` must be called for every step; a process otherwise reports steps at intervals."""
        return False

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Called before the first step, when everything is built."""

    def stepped(self, progress: Progress, loss: float) -> None:
        """Called after every step; on a GPU, after every few steps."""

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """Called after every epoch, with the metrics on the validation set, if there is one."""

    def saved(self, progress: Progress) -> None:
        """Called after every checkpoint."""

    def evaluating(self, samples: int) -> None:
        """Called after the last step, before the model is measured on the test set."""


class Silent(Observer):
    """An observer that does nothing."""
