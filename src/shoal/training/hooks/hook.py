"""The base of hooks: the parts of a run that the training loop does not know by name.

Pruning, a limit of memory, balance, seeds of leaves, events and checkpoints are hooks. `hooks_of` in `worker.py` makes
the list of a run; a new one is a class with the moments that it needs, and a line there.
"""

from shoal.training.evaluation import Metrics
from shoal.training.progress import Progress


class Hook:
    """Acts at some of these moments; the others pass without effect. Hooks act in the order of their list."""

    def before_step(self, progress: Progress, num_samples: int) -> None:
        """A step of this many samples of all workers begins."""

    def before_part(self, part: int) -> None:
        """The next part of this worker's share begins, where parts are leaves (`Share.before_part`)."""

    def after_step(self, step: int, num_samples: int) -> None:
        """The step is over, and this many of its samples were this worker's; its spans can still be read."""

    def after_steps(self) -> None:
        """The steps of an epoch are over, or those up to a checkpoint of workers that take turns, or the run stops."""

    def after_epoch(self, progress: Progress, metrics: Metrics | None) -> None:
        """The epoch is validated, if there is a validation set."""

    def save(self, progress: Progress) -> None:
        """Save the run; all workers do, together."""

    def end(self) -> None:
        """No step follows."""
