"""`shoal.notebook_launch`: run a function of a notebook's cell, or of any program, with several workers."""

import base64
import pickle
import sys
from collections.abc import Callable
from typing import Any, Literal

from shoal.comm.assigned_group import Assignment, assigned
from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Count
from shoal.errors import ConfigError
from shoal.launch import threads
from shoal.launch.process import forks
from shoal.launch.reports import Report, Reporter
from shoal.launch.supervise import Listener


def in_notebook() -> bool:
    """Whether this program is a notebook: what it prints to standard error has a red background there."""
    return "ipykernel" in sys.modules


@checks_arguments
def notebook_launch(
    function: Callable[..., Any],
    *arguments: Any,
    workers: Count = 2,
    launcher: Literal["processes", "threads"] = "processes",
) -> list[Any]:
    """Call a function in every worker, and return what it returned, in the order of ranks.

        def work(scale):
            group = shoal.join()
            ...

        shoal.notebook_launch(work, 0.5, workers=2)

    Worker processes are copies of this one, so the function and its arguments reach them as they are, and changes that
    it makes to other objects stay there. What it returns must be picklable. Each worker computes with one thread. With
    launcher="threads" the workers are threads, and share everything.
    """
    if launcher == "threads":
        return threads.run(workers, lambda group: function(*arguments))
    listener = _Returned()
    forks.run(lambda reporter: _work(reporter, function, arguments), workers, listener)
    return [listener.values[rank] for rank in range(workers)]


def _work(reporter: Reporter, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    with assigned(Assignment()):
        value = function(*arguments)
    try:
        data = base64.b64encode(pickle.dumps(value)).decode()
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{function.__name__} returned a value of type {type(value).__name__}, which cannot be pickled: {error}",
            "Return numbers, tensors or nothing.",
        ) from error
    reporter.send(kind="returned", value=data)
    reporter.finished()


class _Returned(Listener):
    """Collects the values, and shows what workers printed."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}

    def heard(self, rank: int, report: Report) -> None:
        """Take a value."""
        if report["kind"] == "returned":
            self.values[rank] = pickle.loads(base64.b64decode(report["value"]))  # noqa: S301 (of a copy of this process)

    def printed(self, rank: int, output: bytes) -> None:
        """Print it here, where a notebook shows it."""
        for line in output.decode(errors="replace").splitlines():
            print(f"[rank {rank}] {line}")  # noqa: T201 (what the user's function prints)
