"""What a person sees of a run: a live line on a terminal, plain lines elsewhere, only the summary when quiet."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from shoal.config.schema import RunConfig
from shoal.events.folder import RunFolder
from shoal.train.evaluate import Metrics
from shoal.train.progress import Progress
from shoal.train.result import Result

PLAIN_LINE_EVERY_S = 10.0


class Quiet:
    """Says how the run ended, and nothing before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, line: str) -> None:
        """One line."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Nothing."""

    def stepped(self, progress: Progress, loss: float) -> None:
        """Nothing."""

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """Nothing."""

    def finished(self, result: Result) -> None:
        """The summary, each number with its unit."""
        if result.status != "completed":
            return
        rows = [
            ("training loss", f"{result.final_loss:.4f}  (mean of the last epoch)"),
            (
                "training time",
                f"{result.seconds:.2f} s for {counted(result.steps)}, {result.samples_per_s:,.0f} samples/s",
            ),
            ("weights", f"sha256 {result.weights_sha256[:16]}…"),
            ("model", f"{result.run}/model.safetensors"),
        ]
        if result.test_loss is not None:
            rows.insert(0, ("test loss", f"{result.test_loss:.4f}"))
        if result.test_accuracy is not None:
            rows.insert(0, ("test accuracy", f"{100 * result.test_accuracy:.2f} %"))
        for name, value in rows:
            self.say(f"  {name:14} {value}")


class Plain(Quiet):
    """A line per epoch, and one every ten seconds while an epoch lasts longer than that."""

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """What is trained on what, how and where."""
        self._epochs, self._total_steps = config.train.epochs, total_steps
        self._last_line = self._clock_start = time.monotonic()
        self.say(headline(config, device))
        self.say(f"  run folder {folder.path}, {extent(progress, total_steps)}")

    def stepped(self, progress: Progress, loss: float) -> None:
        """A line, if the last one is long ago."""
        if time.monotonic() - self._last_line > PLAIN_LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.say(f"  step {progress.step}/{self._total_steps}  loss {loss:.4f}")

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """The line of an epoch."""
        self._last_line = time.monotonic()
        self.say(epoch_line(progress, self._epochs, metrics))


class Live(Quiet):
    """A bar that moves; the epochs' lines stay above it. Drawn by rich, in a thread of its own."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._console = Console(file=stream, highlight=False)
        self._bar = Bar(
            TextColumn("  {task.fields[epoch]}"),
            BarColumn(bar_width=36),
            TextColumn(
                "step {task.completed:.0f}/{task.total:.0f}  loss {task.fields[loss]}  {task.fields[rate]}"
            ),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self._console,
            transient=True,
        )

    def say(self, line: str) -> None:
        """One line, above the bar."""
        self._console.print(line, markup=False, soft_wrap=True)

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """The headline, and the bar."""
        self._epochs = config.train.epochs
        self._first = progress
        self._samples_before, self._batch = progress.step, config.train.batch_size
        self.say(headline(config, device))
        self.say(f"  run folder {folder.path}, {extent(progress, total_steps)}")
        self._task = self._bar.add_task(
            "", total=total_steps, completed=progress.step, epoch=self._epoch(progress), loss="…", rate=""
        )
        self._bar.start()

    def stepped(self, progress: Progress, loss: float) -> None:
        """Move the bar; rich redraws it ten times a second, whatever we do."""
        steps_per_s = (progress.step - self._first.step) / max(progress.seconds - self._first.seconds, 1e-9)
        self._bar.update(
            self._task,
            completed=progress.step,
            epoch=self._epoch(progress),
            loss=f"{loss:.4f}",
            rate=f"{steps_per_s:,.0f} steps/s",
        )

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """The line of an epoch."""
        self.say(epoch_line(progress, self._epochs, metrics))

    def stop(self) -> None:
        """Take the bar away."""
        self._bar.stop()

    def finished(self, result: Result) -> None:
        """The bar goes, the summary stays."""
        self.stop()
        super().finished(result)

    def _epoch(self, progress: Progress) -> str:
        return f"epoch {min(progress.epoch + 1, self._epochs)}/{self._epochs}"


def headline(config: RunConfig, device: str) -> str:
    """What is trained on what, how and where, in one line."""
    what = f"{config.model.name} on {config.data.name} with {config.optimizer.name}"
    workers = config.launch.workers
    several = f" with {workers} worker{'s' * (workers > 1)}" if config.strategy != "single" else ""
    return f"{what}, {config.strategy}{several}, on {device}"


def extent(progress: Progress, total_steps: int) -> str:
    """How many steps there are, and how many of them lie behind a run that goes on."""
    if progress.step >= total_steps > 0:
        return f"already at step {progress.step} of {total_steps}: --epochs or --steps make it longer"
    return counted(total_steps) + (f", from step {progress.step}" if progress.step else "")


def counted(steps: int) -> str:
    """So many steps.

    >>> counted(1), counted(40)
    ('1 step', '40 steps')
    """
    return f"{steps} step{'s' * (steps != 1)}"


def epoch_line(progress: Progress, epochs: int, metrics: Metrics | None) -> str:
    """An epoch in numbers; with validation, too, it fits a terminal of 80 columns."""
    line = f"  epoch {progress.epoch}/{epochs}  step {progress.step}  "
    if not metrics:
        return f"{line}training loss {progress.last_epoch_loss:.4f}  {progress.seconds:.1f} s"
    line += f"loss {progress.last_epoch_loss:.4f}, validation {metrics.loss:.4f}"
    if metrics.accuracy is not None:
        line += f", accuracy {100 * metrics.accuracy:.2f} %"
    return f"{line}  {progress.seconds:.1f} s"


@contextmanager
def display_for(to_stderr: bool, quiet: bool) -> Generator[Quiet]:
    """The display that fits the stream; whatever happens, the terminal is left as it was."""
    stream = sys.stderr if to_stderr else sys.stdout
    if quiet:
        yield Quiet(stream)
    elif stream.isatty():
        live = Live(stream)
        try:
            yield live
        finally:
            live.stop()
    else:
        yield Plain(stream)
