"""How a run ended: the closing record, as `--json` prints it and `result.json` keeps it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Result:
    """Numbers of one run; what was not measured is none."""

    status: str
    """completed or interrupted."""
    strategy: str
    workers: int
    rank: int
    """The worker whose record this is; `result.json` holds rank 0's."""
    epochs: int
    """Whole epochs done."""
    steps: int
    final_loss: float | None
    """Mean training loss over the last epoch."""
    test_loss: float | None
    test_accuracy: float | None
    validation_loss: float | None
    validation_accuracy: float | None
    seconds: float
    """Time in training steps, over all attempts: evaluation and checkpoints are not in it."""
    samples_per_s: float
    bytes_sent: int
    """What this worker handed to its group."""
    wait_s: float
    """Time in which this worker could do nothing but communicate: waiting for others, and moving."""
    weights_sha256: str
    run: str
    """The run folder."""
    device: str
    stopped_by: int | None
    """The signal that stopped the run, if one did."""
    unusable_checkpoints: Sequence[str] = ()
    """What was wrong with checkpoints that were newer than the one this run resumed from."""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))
