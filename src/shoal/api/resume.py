"""The settings of a run that is resumed: those of its folder, and the changes that do not change what is computed.

A checkpoint holds the state of one machine, whatever strategy saved it, so a run may continue under another strategy,
with another number of workers, in less memory, over slow links or with faults (`config/may_differ.py`). Settings that
decide *what* is computed stay as they are: data, partition, model, loss, optimizer, schedule, batch size, seed, engine,
precision. Their names may be repeated, which is how a user agrees to run a function of their own. How often a step
updates the weights stays, too (`_check_updates`).
"""

from pathlib import Path

from shoal.config.may_differ import DECIDES_BITS, MAY_DIFFER, may_differ
from shoal.config.read import Tree, from_tree, merge, read_recipe
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.events.folder import RunFolder

RESUMED = [path for path, places in MAY_DIFFER.items() if "resumed" in places]


def resumed_config(folder: Path, changes: Tree, trust_code: bool) -> RunConfig:
    """The settings of the stopped run, with the changes that a resumed run may make."""
    config = RunFolder(folder).config
    if not config.exists():
        if not folder.exists():
            raise ConfigError(
                f"no run folder {folder}", "Check the path after --resume: runs are in runs/NAME."
            )
        raise ConfigError(f"{folder} is not a run folder: it has no {config.name}")
    saved = read_recipe(str(config), trust_code)
    tables = {section: table for section, table in saved.items() if isinstance(table, dict)}
    is_invariant = tables.get("train", {}).get("reduction") == "invariant"
    for section, value in changes.items():
        for path in [f"{section}.{key}" for key in value] if isinstance(value, dict) else [section]:
            repeated = path == f"{section}.name" and value["name"] == tables.get(section, {}).get("name")
            # A section may be given by its name alone.
            if not may_differ(path, "resumed") and f"{section}.*" not in RESUMED and not repeated:
                raise ConfigError(
                    f"--resume cannot change {path}", f"It can change: {', '.join(sorted(RESUMED))}."
                )
            if is_invariant and path in DECIDES_BITS:
                raise ConfigError(
                    f"--resume cannot change {path} of a run with --reduction invariant: its bits depend on it",
                    f"Resume it without --{path.rpartition('.')[2].replace('_', '-')}.",
                )
    config = from_tree(merge(saved, changes))
    _check_updates(folder, _updates_of(from_tree(saved)), _updates_of(config))
    return config


def _updates_of(config: RunConfig) -> str:
    """Which updates a step of a run makes."""
    stages, microbatches = config.axes.get("pipeline", 1), config.pipeline.microbatches
    if stages == 1 or microbatches == 1 or not config.pipeline.updates_inside:
        return "one update per step"
    # The weights that a micro-batch sees depend on the number of stages, too.
    return f"an update after each of {microbatches} micro-batches in {stages} stages (async)"


def _check_updates(folder: Path, before: str, now: str) -> None:
    """Refuse to begin or end the pipeline schedule `async` in the middle of a run, or to change its delays."""
    if before != now:
        raise ConfigError(
            f"--resume cannot change what a step computes: the run in {folder} makes {before}, not {now}",
            "Resume it with its own --pipeline settings, or start a new run.",
        )
