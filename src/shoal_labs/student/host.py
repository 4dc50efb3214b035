"""Where the code of an experiment runs: in this process, or a student's in processes of its own.

An experiment asks its host to train a run or to call a function, and does not know whose code it measures. A student's
code runs with its folder first in the import path, with a time limit, and with stand-ins for torchvision and a GPU; an
error there becomes one sentence with the student's file and line.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from shoal.kit.base import ConfigError, DivergedError
from shoal.kit.runs import RunFolder
from shoal.kit.settings import RunConfig, from_plain, to_plain
from shoal.kit.training import Observer, Result, Silent, launch_run
from shoal_labs.check.nodes import Node, run_nodes
from shoal_labs.check.trial import called, failures
from shoal_labs.student.submission import Submission, in_words
from shoal_labs.words import Words

LIMIT_S = 600.0
"""How long a student's code may take for one run. The checks before it have a shorter limit: this is for slow code."""


class Host(Protocol):
    """Runs code for an experiment."""

    def train(self, config: RunConfig, observer: Observer, resumed: RunFolder | None = None) -> Result:
        """Train a run, or open a finished one again."""
        ...

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of a module. JSON can represent its arguments and what it returns."""
        ...


class Here:
    """This process, for code of our own."""

    def train(self, config: RunConfig, observer: Observer, resumed: RunFolder | None = None) -> Result:
        """Train as `shoal train` does."""
        return launch_run(config, observer, resumed)

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call it."""
        return function(*args)


HERE = Here()


@dataclass(frozen=True)
class StudentHost:
    """Processes that import a student's files."""

    submission: Submission
    words: Words
    """For the sentence of an error."""
    limit_s: float = LIMIT_S

    def train(self, config: RunConfig, observer: Observer, resumed: RunFolder | None = None) -> Result:
        """Train in another process; its steps are not observed."""
        path = str(resumed.path) if resumed else ""
        return Result(**self.call(train_plain, to_plain(config), path))

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call it in another process."""
        module = function.__module__
        given = (module, function.__qualname__, *args)
        (node,) = self._run(called, 1, *given, meet=False, imports=module)
        return node.answer

    def nodes(self, work: Callable[..., Any], size: int, *args: Any) -> list[Node]:
        """Run `work(rank, *args)` on some nodes, which form a process group of torch."""
        return self._run(work, size, *args, meet=True)

    def _run(
        self, work: Callable[..., Any], size: int, *args: Any, meet: bool, imports: str = ""
    ) -> list[Node]:
        folder = self.submission.file.parent
        nodes = run_nodes(work, folder, size, *args, meet=meet, limit_s=self.limit_s, imports=imports)
        raise_failures(nodes, self.submission, self.words)
        return nodes


def raise_failures(nodes: Sequence[Node], submission: Submission, words: Words) -> None:
    """Raise the error of nodes that gave no answer: a ConfigError that names the student's file."""
    diverged = [node.raised for node in nodes if node.raised and node.raised.kind == DivergedError.__name__]
    if diverged:
        raise DivergedError(diverged[0].text)
    if found := failures(nodes):
        raise stopped_by(submission, in_words(found, words), words)


def stopped_by(submission: Submission, sentences: Sequence[str], words: Words) -> ConfigError:
    """The error for code that cannot run to its end."""
    return ConfigError(
        f"{submission.file.name}: {'; '.join(sentences)}",
        words("own.alone", number=submission.number, folder=submission.folder),
    )


def train_plain(plain: dict[str, Any], resumed: str) -> dict[str, Any]:
    """Train in this process, from settings as data."""
    folder = RunFolder(Path(resumed)) if resumed else None
    return asdict(launch_run(from_plain(plain), Silent(), folder))
