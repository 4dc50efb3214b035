"""The display of a run: a progress bar on a terminal, plain lines elsewhere, only the summary if quiet."""

import re
import sys
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from shoal.api.settings import MODULE
from shoal.config.mesh import grid
from shoal.config.metrics import in_words, list_in_words
from shoal.config.schema import RunConfig
from shoal.errors import ShoalError
from shoal.events.file import Record, read_events
from shoal.events.folder import RunFolder
from shoal.printable import counted, printable, unless_hung_up
from shoal.report.plain_tables import aligned
from shoal.report.staleness import staleness_of
from shoal.training.evaluation import Metrics
from shoal.training.observer import Silent
from shoal.training.progress import Progress
from shoal.training.result import Result

PLAIN_LINE_EVERY_S = 10.0


class Quiet(Silent):
    """Shows only the summary at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.folder: RunFolder | None = None
        """The run folder, once the run has started."""
        self.when_started: Callable[[Path], None] = lambda _: None
        """Called with that folder."""

    def say(self, line: str) -> None:
        """Write a line; after the terminal was closed, nothing."""
        with unless_hung_up():
            self._stream.write(printable(line) + "\n")
            self._stream.flush()

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Remember the folder."""
        self.folder = folder
        self.when_started(folder.path)

    def finished(self, result: Result) -> None:
        """The summary, each number with its unit."""
        if result.status != "completed":
            return
        speed = f"{counted(result.steps, 'step')}, {result.samples_per_s:,.0f} samples/s"
        accuracy, loss = result.test_accuracy, result.test_loss
        rows = {
            "test accuracy": None if accuracy is None else f"{100 * accuracy:.2f} %",
            "test loss": None if loss is None else f"{loss:.4f}",
            **{f"test {name}": in_words(name, value) for name, value in (result.test_metrics or {}).items()},
            "training loss": f"{result.final_loss:.4f}  (mean of the last epoch)",
            **best_rows(result),
            "training time": f"{result.seconds:.2f} s for {speed}",
            "compiling": f"{result.compile_s:.2f} s, in the first steps" if result.compile_s else None,
            "loss scale": None if result.loss_scale is None else scale_in_words(result),
            **server_rows(result),
            "codec": None if result.codec is None else f"{result.codec}  (chosen by compressed:auto)",
            "weights": f"sha256 {result.weights_sha256[:16]}…",
            "model": f"{result.run}/model.safetensors",
        }
        width = max(14, *(len(name) for name in rows))
        for name, value in rows.items():
            if value is not None:
                self.say(f"  {name:{width}} {value}")
        for line in codec_lines(RunFolder(Path(result.run))) if result.codec else ():
            self.say(f"    {line}")

    def stop(self) -> None:
        """Leave the terminal as it was."""


class Plain(Quiet):
    """A line per epoch, and one every ten seconds during a longer epoch."""

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Model, data, optimizer, strategy and device; the run folder and the number of steps."""
        super().started(config, folder, progress, total_steps, device)
        self._epochs, self._total_steps, self._last_line = config.train.epochs, total_steps, time.monotonic()
        self.say(headline(config, device))
        if any(size > 1 for axis, size in config.axes.items() if axis != "data"):
            for line in grid(config.axes):
                self.say(f"    {line}")
        self.say(f"  run folder {folder.path}, {extent(progress, total_steps)}")

    def stepped(self, progress: Progress, loss: float) -> None:
        """A line, if the last one was long ago."""
        if time.monotonic() - self._last_line > PLAIN_LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.say(f"  step {progress.step}/{self._total_steps}  loss {loss:.4f}")

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """The line of an epoch."""
        self._last_line = time.monotonic()
        self.say(epoch_line(progress, self._epochs, metrics))

    def evaluating(self, samples: int) -> None:
        """What takes the next moments."""
        self.say(f"  evaluating on {samples:,} test sample{'s' * (samples != 1)}")


class Live(Plain):
    """A progress bar below the lines of the epochs. Rich draws it, in its own thread."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._console = Console(file=stream, highlight=False)
        numbers = "step {task.completed:.0f}/{task.total:.0f}  loss {task.fields[loss]}  {task.fields[rate]}"
        self._bar = Bar(
            TextColumn("  {task.fields[epoch]}"),
            BarColumn(bar_width=36),
            TextColumn(numbers),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self._console,
            transient=True,
        )

    def say(self, line: str) -> None:
        """Write a line above the bar."""
        with unless_hung_up():
            self._console.print(printable(line), markup=False, soft_wrap=True)

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """The same lines, and the bar."""
        super().started(config, folder, progress, total_steps, device)
        self._first = progress
        self._task = self._bar.add_task(
            "", total=total_steps, completed=progress.step, epoch=self._epoch(progress), loss="…", rate=""
        )
        with unless_hung_up():
            self._bar.start()

    def stepped(self, progress: Progress, loss: float) -> None:
        """Move the bar; rich redraws it ten times a second."""
        steps_per_s = (progress.step - self._first.step) / max(progress.seconds - self._first.seconds, 1e-9)
        epoch, rate = self._epoch(progress), f"{steps_per_s:,.0f} steps/s"
        self._bar.update(self._task, completed=progress.step, epoch=epoch, loss=f"{loss:.4f}", rate=rate)

    def stop(self) -> None:
        """Remove the bar."""
        with unless_hung_up():
            self._bar.stop()

    def finished(self, result: Result) -> None:
        """Remove the bar, show the summary."""
        self.stop()
        super().finished(result)

    def _epoch(self, progress: Progress) -> str:
        return f"epoch {min(progress.epoch + 1, self._epochs)}/{self._epochs}"


def best_rows(result: Result) -> dict[str, str]:
    """The best epoch on the validation set, and why a run stopped early."""
    if result.best is None:
        reason = f"after epoch {result.epochs}: no epoch had a finite value on the validation set"
        return {"stopped early": reason} if result.stopped_early else {}
    metric, value, epoch = result.best["metric"], result.best["value"], result.best["epoch"]
    shown = f"validation {metric} {in_words(metric, value)}"
    rows = {"best epoch": f"{epoch}: {shown}  (checkpoint best)"}
    if result.stopped_early:
        waited = result.epochs - epoch
        rows["stopped early"] = (
            f"after epoch {result.epochs}: no better {metric} for {counted(waited, 'epoch')}"
        )
    return rows


def scale_in_words(result: Result) -> str:
    """The factor on the loss, and how many steps overflowed."""
    factor = result.loss_scale or 0.0
    shown = f"{factor:,.0f}" if factor >= 1 else f"{factor:.3g}"
    return f"{shown}, {counted(result.left_out or 0, 'step')} left out after an overflow"


def server_rows(result: Result) -> dict[str, str]:
    """What a parameter server has done; where updates are stale, how stale, and what that means."""
    if result.server is None:
        return {}
    mode, updates = result.server["mode"], result.server["updates"]
    are = "" if result.server.get("exact") else "not "
    repeats = "" if result.server.get("repeats") else ", and runs do not repeat"
    skipped = result.server.get("skipped", 0)
    left_out = f", and {skipped:,} skipped because a number was not finite" * bool(skipped)
    rows = {"updates": f"{updates:,} ({mode}: {are}one machine's{repeats}){left_out}"}
    found = None
    with suppress(ShoalError):  # of damaged events: `shoal report` names them, and this run has finished
        found = (
            staleness_of(RunFolder(Path(result.run)), result.workers) if result.server["servers"] else None
        )
    if found is not None and (found.mean or any(each.dropped for each in found.workers)):
        rows |= {"staleness": found.in_words(), "pushes": found.progress_in_words()}
    lost = [
        f"rank {loss['rank']} after {loss['updates']:,} updates" for loss in result.server.get("lost", ())
    ]
    return rows | ({"lost": f"{', '.join(lost)}; the others took its share of the data"} if lost else {})


def codec_lines(folder: RunFolder) -> list[str]:
    """What `compressed:auto` measured, as a table; nothing where the choice had one candidate."""
    choices = list[Record]()
    with suppress(ShoalError):
        choices = [event for event in read_events(folder.events()) if event["event"] == "codec"]
    if not choices:
        return []
    rows = [
        [
            each["codec"],
            f"{each['encode_decode_ms']:,.1f} ms",
            f"{each['bytes']:,}",
            f"{each['predicted_ms']:,.1f} ms",
            f"{each['break_even_gbit_s']:.2g} Gbit/s" if each["break_even_gbit_s"] else "–",
        ]
        for each in choices[-1]["candidates"]
    ]
    header = ["candidate", "encode + decode", "bytes sent", "exchange, predicted", "pays below"]
    return aligned(header, rows, right=frozenset({1, 2, 3, 4})).splitlines()


def headline(config: RunConfig, device: str) -> str:
    """Model, data, optimizer, strategy and device, on one line."""
    model, data, optimizer = (
        choice.name.removeprefix(f"{MODULE}:") for choice in (config.model, config.data, config.optimizer)
    )
    what = f"{model} on {data} with {optimizer}"
    workers = config.launch.workers
    several = f" with {counted(workers, 'worker')}" if config.strategy != "single" else ""
    if config.num_servers:
        several += f" and {counted(config.num_servers, 'server')}"
    return f"{what}, {config.strategy}{several}, on {device}"


def extent(progress: Progress, total_steps: int) -> str:
    """The number of steps, and how many of them a resumed run has made."""
    if progress.step >= total_steps > 0:
        return f"already at step {progress.step} of {total_steps}: --epochs or --steps make it longer"
    return counted(total_steps, "step") + (f", from step {progress.step}" if progress.step else "")


def epoch_line(progress: Progress, epochs: int, metrics: Metrics | None) -> str:
    """The numbers of an epoch; also with validation, the line fits 80 columns. More metrics are on a second one."""
    line = f"  epoch {progress.epoch}/{epochs}  step {progress.step}  "
    if not metrics:
        return f"{line}training loss {progress.last_epoch_loss:.4f}  {progress.seconds:.1f} s"
    line += f"loss {progress.last_epoch_loss:.4f}, validation {metrics.loss:.4f}"
    if metrics.accuracy is not None:
        line += f", accuracy {100 * metrics.accuracy:.2f} %"
    line += f"  {progress.seconds:.1f} s"
    return f"{line}\n    validation {list_in_words(metrics.metrics)}" if metrics.metrics else line


@contextmanager
def display_for(to_stderr: bool, quiet: bool) -> Generator[Quiet]:
    """The display that fits the stream; leaves the terminal as it was, also after an error."""
    stream = sys.stderr if to_stderr else sys.stdout
    display = Quiet(stream) if quiet else Live(stream) if stream.isatty() else Plain(stream)
    try:
        yield display
    finally:
        display.stop()


@contextmanager
def warnings_in_one_line() -> Generator[None]:
    """Show warnings without the line of our code that issued them, and objects of `shoal.fit` by their own names."""

    def formatted(message: Warning | str, *_: object) -> str:
        text = re.sub(rf"\b(\w+) {MODULE}:\1\b", r"\1", str(message))
        return printable(f"warning: {text.replace(f'{MODULE}:', '')}") + "\n"

    before = warnings.formatwarning
    warnings.formatwarning = formatted
    try:
        yield
    finally:
        warnings.formatwarning = before
