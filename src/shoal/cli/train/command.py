"""`shoal train`: train a model as a recipe and flags describe it."""

from pathlib import Path
from typing import TYPE_CHECKING

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.cli.train.flags import TrainFlags
from shoal.cli.train.place import place_of, set_threads
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.config.schema import RunConfig
    from shoal.train.result import Result

MAY_CHANGE = {
    "train.epochs",
    "train.steps",
    "train.micro_batch",
    "train.balance",
    "train.on_nonfinite",
    "device",
    "threads",
    "data.dir",
    "output.trace",
    "checkpoint.*",
    "launch.*",
    "mesh",
    "pipeline.*",
    "tensor.*",
    "strategy.*",
    "sync.*",
    "exchange.*",
    "memory.*",
}
"""What may change with --resume: how long the run is, where it runs, on how many workers, by which strategy.

A checkpoint holds the state of one machine, whatever strategy saved it, so a run may continue under another strategy,
with another number of workers, in less memory, over slow links or with faults. What decides *what* is computed stays as
it is: data, partition, model, loss, optimizer, schedule, batch size, seed, engine, precision. Their names may be
repeated, which is how a user agrees to run a function of their own. So does how often a step updates the weights
(`_check_updates`).
"""


DECIDES_BITS = {"train.micro_batch", "device", "threads"}
"""Settings that --resume cannot change either in a run with --reduction invariant: its bits depend on them."""


def run(given: Given[TrainFlags]) -> int:
    """Train a model from a recipe and flags, or resume a run.

    RECIPE is a TOML file, or the name of one that comes with shoal, such as quickstart. Flags override the recipe. A
    flag that names another choice than the recipe (--optimizer sgd) replaces that whole section.
    """
    config, result = _train(given)
    if result.rank > 0:  # started by hand or by torchrun
        text.warn(f"rank {result.rank} of {result.workers} is done; rank 0 reports the result")
    elif given.flags.json:
        text.show(result.to_json())
    if result.status == "interrupted":
        from shoal.config.custom import named_code
        from shoal.events.folder import resume_command

        command = resume_command(result.run, bool(named_code(config)))
        text.warn(f"stopped after step {result.steps}; resume with: {command}")
        return 128 + (result.stopped_by or 0)
    return 0


def _train(given: Given[TrainFlags]) -> "tuple[RunConfig, Result]":
    from shoal.config.read import read

    flags, folder = given.flags, given.flags.resume
    recipe = given.words[0] if given.words else None
    if folder is None:
        config = read(recipe, given.settings, flags.trust_code)
    elif recipe is not None:
        raise ConfigError(f"--resume continues the run in {folder}; it takes no recipe ('{recipe}')")
    else:
        config = _resumed_config(folder, given.settings, flags.trust_code)

    place = place_of(flags)
    set_threads(place, config.threads)
    if config.memory.budget is not None and folder is None:
        config = _within_budget(config, place is not None)

    from shoal.cli.train.display import display_for
    from shoal.comm.join import WorkerAddress
    from shoal.config.custom import named_code
    from shoal.events.folder import RunFolder, resume_command
    from shoal.launch.run import launch_run

    resumed = RunFolder(folder) if folder else None
    with display_for(to_stderr=flags.json, quiet=flags.quiet) as display:
        try:
            result = launch_run(
                config, display, resumed, WorkerAddress(*place) if place else None, flags.join_timeout
            )
        except KeyboardInterrupt:  # the second signal: nothing more is saved
            display.stop()
            if display.folder is not None and any(display.folder.checkpoints.glob("step-*[0-9]")):
                command = resume_command(display.folder.path, bool(named_code(config)))
                text.warn(f"stopped at once; resume from the last checkpoint: {command}")
            raise
        if result.rank == 0:
            display.finished(result)
    return config, result


def _within_budget(config: "RunConfig", is_one_worker: bool) -> "RunConfig":
    """The settings with which the run fits its budget; they are measured, and reported."""
    from shoal.memory.budget import within_budget

    if is_one_worker:
        raise ConfigError(
            "--memory.budget needs workers that shoal starts itself: it tries several settings before training",
            "Run `shoal train` with the same settings on one machine, then use the --memory settings that it reports.",
        )
    choice = within_budget(config)
    text.warn(f"--memory.budget {config.memory.budget}: {choice.reason}")
    return choice.variant.config


def _resumed_config(folder: Path, flags: list[str], trust_code: bool) -> "RunConfig":
    """The settings of the stopped run, with the changes that --resume allows."""
    from shoal.config.read import from_tree, merge, read_flags, read_recipe
    from shoal.events.folder import RunFolder

    changes = read_flags(flags)
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
            if path not in MAY_CHANGE and f"{section}.*" not in MAY_CHANGE and not repeated:
                raise ConfigError(
                    f"--resume cannot change {path}",
                    f"It can change: {', '.join(sorted(MAY_CHANGE))}.",
                )
            if is_invariant and path in DECIDES_BITS:
                raise ConfigError(
                    f"--resume cannot change {path} of a run with --reduction invariant: its bits depend on it",
                    f"Resume it without --{path.rpartition('.')[2].replace('_', '-')}.",
                )
    config = from_tree(merge(saved, changes))
    _check_updates(folder, _updates_of(from_tree(saved)), _updates_of(config))
    return config


def _updates_of(config: "RunConfig") -> str:
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


def _settings() -> list[str]:
    from shoal.cli.train.help import settings_page

    return settings_page()


COMMAND = Command("train", run, TrainFlags, words="[RECIPE]", settings=("*",), details=_settings)
