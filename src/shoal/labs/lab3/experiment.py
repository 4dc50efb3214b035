"""All runs of the lab, one after the other, each in its folder."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from shoal.config.schema import RunConfig
from shoal.config.write import to_toml
from shoal.events.folder import write_whole
from shoal.labs.lab3.own_loop import SELDOM, WAYS, OwnResult, train_own
from shoal.labs.lab3.plan import Plan, run_name
from shoal.labs.runs import finished
from shoal.labs.watch import Watch
from shoal.labs.words import Words

RECORD = "record.json"
"""What a run of the lab's own loop leaves."""


@dataclass(frozen=True)
class Runs:
    """Where everything was written."""

    plan: Plan
    folders: Mapping[str, Path]
    own: Mapping[tuple[str, int, int], OwnResult]
    """Runs of the lab's own loop, by way, number of workers and seed."""


def run_all(plan: Plan, runs: Path, words: Words, watch: Watch, earlier: Path | None = None) -> Runs:
    """Make every run. A Ctrl-C ends it with a KeyboardInterrupt; the runs stay.

    What an `earlier` folder of runs holds, finished and with the same settings, is copied and not trained again.
    """
    configs = plan.runs(str(runs))
    ways = [
        (way, workers, seed)
        for workers in plan.workers
        for way in WAYS
        if way not in SELDOM or workers == plan.most
        for seed in plan.seeds_of(workers)
    ]
    total = len(configs) + len(ways)
    for number, (name, config) in enumerate(configs.items(), start=1):
        label = words("progress.run", number=number, total=total, name=name)
        result = finished(config, watch.running(label), earlier)
        watch.say(words("progress.done", label=label, loss=result.final_loss, seconds=result.seconds))
    own: dict[tuple[str, int, int], OwnResult] = {}
    for number, (way, workers, seed) in enumerate(ways, start=len(configs) + 1):
        name = run_name(f"own-{way}", workers, seed)
        label = words("progress.run", number=number, total=total, name=name)
        watch.running(label)
        own[way, workers, seed] = _own(way, name, plan.own(workers, seed), runs, earlier)
        accuracy = own[way, workers, seed].accuracy[-1]
        watch.say(words("progress.own", label=label, accuracy=100 * accuracy))
    return Runs(plan, {name: runs / name for name in configs}, own)


def _own(way: str, name: str, config: RunConfig, runs: Path, earlier: Path | None) -> OwnResult:
    """A run of the lab's own loop: made, or taken over where it was made with the same settings."""
    settings = {"way": way, "config": to_toml(config)}
    if earlier is not None and (earlier / name / RECORD).exists():
        record = json.loads((earlier / name / RECORD).read_text(encoding="utf-8"))
        if {key: record[key] for key in settings} == settings:
            shutil.copytree(earlier / name, runs / name)
            return OwnResult(**record["result"])
    result = train_own(way, config)
    (runs / name).mkdir(parents=True)
    write_whole(runs / name / RECORD, json.dumps({**settings, "result": asdict(result)}, indent=1) + "\n")
    return result
