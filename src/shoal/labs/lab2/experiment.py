"""All runs of the lab, one after the other, each in its folder."""

import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shoal.config.schema import RunConfig
from shoal.errors import DivergedError, WorkerError
from shoal.labs.lab2.plan import Plan
from shoal.labs.runs import finished
from shoal.labs.watch import Watch
from shoal.labs.words import Words


@dataclass(frozen=True)
class Runs:
    """Where everything was written, and which runs were stopped."""

    plan: Plan
    folders: Mapping[str, Path]
    stopped: Mapping[str, str]
    """Runs that a bad worker ended, and the sentence that said so."""

    def path(self, name: str) -> Path:
        """The folder of a run."""
        return self.folders[name]


def run_all(plan: Plan, runs: Path, words: Words, watch: Watch, earlier: Path | None = None) -> Runs:
    """Make every run. A Ctrl-C ends it with a KeyboardInterrupt; the runs stay.

    What an `earlier` folder of runs holds, finished and with the same settings, is copied and not trained again.
    """
    configs = plan.runs(str(runs))
    stopped: dict[str, str] = {}
    for number, (name, config) in enumerate(configs.items(), start=1):
        label = words("progress.run", number=number, total=len(configs), name=name)
        try:
            with _expected(config):
                result = finished(config, watch.running(label), earlier)
        except (DivergedError, WorkerError) as error:
            if not config.launch.fault:
                raise
            stopped[name] = error.message
            watch.say(words("progress.ended", label=label, why=error.message))
        else:
            watch.say(words("progress.done", label=label, loss=result.final_loss, seconds=result.seconds))
    return Runs(plan, {name: runs / name for name in configs}, stopped)


@contextmanager
def _expected(config: RunConfig) -> Generator[None]:
    """A run with a bad worker is warned about in every step: here that is the experiment, and no news."""
    with warnings.catch_warnings():
        if config.launch.fault:
            warnings.simplefilter("ignore")
        yield
