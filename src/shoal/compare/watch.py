"""Progress of a comparison or lab: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TextIO

from shoal.config.schema import RunConfig
from shoal.events.folder import RunFolder
from shoal.printable import printable
from shoal.training.evaluation import Metrics
from shoal.training.observer import Observer, Silent
from shoal.training.progress import Progress

LINE_EVERY_S = 10.0
MOVE_EVERY_S = 0.1


class Watch(Protocol):
    """Shows what a comparison or lab does."""

    def say(self, line: str) -> None:
        """Something is done; the line stays."""
        ...

    def running(self, label: str) -> Observer:
        """A run starts; the observer of its steps."""
        ...


class QuietWatch:
    """Says nothing."""

    def say(self, line: str) -> None:
        """Nothing."""

    def running(self, label: str) -> Observer:
        """No observer."""
        return Silent()


class PlainWatch:
    """Prints lines; within a long run one every ten seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, line: str) -> None:
        """One line."""
        self._stream.write(printable(line) + "\n")
        self._stream.flush()

    def running(self, label: str) -> Observer:
        """Shows the progress of a long run."""
        return _Steps(label, lambda line: self.say(f"  {line}"), LINE_EVERY_S)


class LiveWatch:
    """Lines that stay above one that moves; drawn by rich."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream, highlight=False)
        self._status = self._console.status("")

    def __enter__(self) -> "LiveWatch":
        self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._status.stop()

    def say(self, line: str) -> None:
        """One line, above the moving one."""
        self._console.print(printable(line), markup=False, soft_wrap=True)

    def running(self, label: str) -> Observer:
        """Moves the line."""
        from rich.text import Text

        self._status.update(Text(label))
        return _Steps(label, lambda line: self._status.update(Text(line)), MOVE_EVERY_S)


class _Steps:
    """Shows the steps of one run, at most one line per interval."""

    wants_every_step = False

    def __init__(self, label: str, show: Callable[[str], None], every_s: float) -> None:
        self._label, self._show, self._every_s = label, show, every_s
        self._total_steps = 0
        self._last_s = time.monotonic()

    def started(
        self, config: RunConfig, folder: RunFolder, progress: Progress, total_steps: int, device: str
    ) -> None:
        """Remember how long the run is."""
        self._total_steps = total_steps

    def stepped(self, progress: Progress, loss: float) -> None:
        """Show a line if the interval has passed."""
        now_s = time.monotonic()
        if now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self._show(f"{self._label}: {progress.step}/{self._total_steps}")

    def validated(self, progress: Progress, metrics: Metrics | None) -> None:
        """Nothing: results are shown when all runs are there."""

    def saved(self, progress: Progress) -> None:
        """Nothing."""

    def evaluating(self, samples: int) -> None:
        """Nothing."""


@contextmanager
def watch_for(stream: TextIO, quiet: bool) -> Generator[Watch]:
    """The watch for a stream; the terminal is restored in every case."""
    if quiet:
        yield QuietWatch()
    elif stream.isatty():
        with LiveWatch(stream) as watch:
            yield watch
    else:
        yield PlainWatch(stream)
