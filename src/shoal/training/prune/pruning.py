"""Pruning while a run trains: masks that change by a schedule."""

from collections.abc import Callable
from typing import Any, final

from shoal.prune.masks import CubicSchedule, WeightMasks
from shoal.training.hooks import Hook
from shoal.training.progress import Progress


@final
class Pruning(Hook):
    """Changes the masks before the steps that the schedule names, and records each change.

    The weights are the same on all workers and the choice is a pure function of them, so the masks are the same, too;
    their fingerprint is in every worker's events.
    """

    def __init__(
        self,
        masks: WeightMasks,
        schedule: CubicSchedule,
        record: Callable[[dict[str, Any]], None],
        rewind: Callable[[], None] | None = None,
    ) -> None:
        """`rewind` gives the weights earlier values, once the masks are chosen."""
        self._masks, self._schedule, self._record, self._rewind = masks, schedule, record, rewind

    def before_step(self, progress: Progress, num_samples: int) -> None:
        """Prune, if it is time."""
        masks, step = self._masks, progress.step
        if not self._schedule.is_due(step):
            return
        masks.prune(self._schedule.part(step))
        if self._rewind is not None:
            self._rewind()
            masks.after_update()
        self._record(
            {"event": "pruned", "step": step, "sparsity": round(masks.sparsity, 6), "kept": masks.num_kept}
            | {"masks_sha256": masks.sha256()}
        )
