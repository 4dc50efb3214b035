"""The result of a run, as printed by `--json` and stored in `result.json`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, repr=False)
class Result:
    """Numbers of one run; None for what was not measured."""

    status: str
    """completed or interrupted."""
    strategy: str
    workers: int
    rank: int
    """The worker of this result; `result.json` holds rank 0's."""
    epochs: int
    """Completed epochs."""
    steps: int
    final_loss: float | None
    """Mean training loss over the last epoch."""
    test_loss: float | None
    test_accuracy: float | None
    validation_loss: float | None
    validation_accuracy: float | None
    seconds: float
    """Time in training steps, over all attempts; without evaluation, checkpoints and compiling."""
    samples_per_s: float
    bytes_sent: int
    """Bytes that left a worker in the training steps of this attempt: the mean over the workers. Collectives count as
    rings (`shoal.comm.costs`); the weights of a server count with the worker that pulls them."""
    wait_s: float
    """Time in which this worker was blocked by communication: waiting for others, and moving data."""
    weights_sha256: str
    run: str
    """The run folder."""
    device: str
    stopped_by: int | None
    """The signal that stopped the run, if one did."""
    test_metrics: Mapping[str, float] | None = None
    """The metrics of `--metrics` on the test set, by name."""
    validation_metrics: Mapping[str, float] | None = None
    """The same on the validation set."""
    best: Mapping[str, Any] | None = None
    """With a validation set, the best epoch: metric, value, epoch, step. Its checkpoint is called `best`."""
    stopped_early: bool = False
    """Whether `--stop.patience` ended the run before its last step."""
    unusable_checkpoints: Sequence[str] = ()
    """Faults of checkpoints newer than the checkpoint from which this run resumed."""
    server: Mapping[str, Any] | None = None
    """Of a parameter server: mode, whether it gathers the pushes of a step, whether runs repeat, whether each update is
    one machine's (exact), servers; in this attempt, updates of a server, their staleness, pushes dropped, updates
    skipped because a number was not finite, workers lost and the updates made before."""
    codec: str | None = None
    """The choice of `--exchange compressed:auto`; the event `codec` of the run has the measurements."""
    sparsity: float | None = None
    """With `--prune magnitude` or `movement`: the fraction of the prunable weights that are zero."""
    masks_sha256: str | None = None
    """One fingerprint of all masks."""
    test_samples: int | None = None
    """Samples of the test set: how uncertain `test_accuracy` is follows from it."""
    run_id: str = ""
    """The id of the run, in all files of its folder; empty for a run that an older version began."""
    bytes_mapped: int = 0
    """Of `bytes_sent`, the bytes that did not travel because workers map each other's memory."""
    compile_s: float = 0.0
    """With `--compile` or `--engine static`, the time that this worker compiled in this attempt, mostly in its first
    step; not a part of `seconds`."""
    loss_scale: float | None = None
    """With `--precision fp16`, the factor on the loss at the end."""
    left_out: int | None = None
    """With `--precision fp16`, the steps that were left out because a gradient overflowed, over all attempts."""

    def __repr__(self) -> str:
        words = [f"{self.strategy}, {self.workers} worker{'s' * (self.workers > 1)}"]
        words.append(f"{self.steps:,} step{'s' * (self.steps != 1)} in {self.seconds:.1f} s")
        if self.test_accuracy is not None:
            words.append(f"test accuracy {100 * self.test_accuracy:.2f} %")
        elif self.test_loss is not None:
            words.append(f"test loss {self.test_loss:.4f}")
        return f"Result({self.status}: {'; '.join(words)}; {self.run})"

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))
