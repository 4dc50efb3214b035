"""`shoal train`: train a model as a recipe and flags describe it."""

import os
import sys
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.cli.train.flags import TrainFlags
from shoal.cli.train.place import place_of, set_threads, take_gpu
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.config.schema import RunConfig
    from shoal.training.result import Result


def run(given: Given[TrainFlags]) -> int:
    """Train a model from a recipe and flags, or resume a run.

    RECIPE is a TOML file, or the name of one that comes with shoal, such as quickstart. Flags override the recipe. A
    flag that names another choice than the recipe (--optimizer sgd) replaces that whole section.

    `shoal train --help optimizer` shows the settings of one section.
    """
    if given.flags.print_config or given.flags.dry_run:
        return _only_show(given)
    # What functions of the user's own print must not mix with the JSON.
    with redirect_stdout(sys.stderr) if given.flags.json else nullcontext():
        config, result = _train(given)
    if result.rank > 0:  # started by hand or by torchrun
        text.warn(f"rank {result.rank} is done; rank 0 reports the result")
    elif given.flags.json:
        text.show(result.to_json())
    if result.status == "interrupted":
        from shoal.config.custom import named_code
        from shoal.events.folder import resume_command

        command = resume_command(result.run, bool(named_code(config)))
        text.warn(f"stopped after step {result.steps}; resume with: {command}")
        return 128 + (result.stopped_by or 0)
    return 0


def _config(given: Given[TrainFlags]) -> "RunConfig":
    from shoal.api.resume import resumed_config
    from shoal.config.read import read, read_flags

    flags, folder = given.flags, given.flags.resume
    recipe = given.words[0] if given.words else None
    if folder is None:
        return read(recipe, given.settings, flags.trust_code)
    if recipe is not None:
        raise ConfigError(f"--resume continues the run in {folder}; it takes no recipe ('{recipe}')")
    return resumed_config(folder, read_flags(given.settings), flags.trust_code)


def _only_show(given: Given[TrainFlags]) -> int:
    """--print-config and --dry-run."""
    config = _config(given)
    if given.flags.print_config:
        from shoal.config.write import to_toml

        text.show(to_toml(config).rstrip())
    if given.flags.dry_run:
        from shoal.api.dry_run import dry_run

        place_of(given.flags)
        take_gpu(given.flags.gpu)
        text.show("\n".join(dry_run(config)))
    return 0


def _train(given: Given[TrainFlags]) -> "tuple[RunConfig, Result]":
    flags, folder, config = given.flags, given.flags.resume, _config(given)
    place = place_of(flags)
    set_threads(place, config.threads)
    take_gpu(flags.gpu)
    if config.memory.budget is not None and folder is None:
        from shoal.memory.budget import budgeted

        config, why = budgeted(config, is_one_worker=place is not None)
        text.warn(why)

    from shoal.api.callbacks import WithCallbacks
    from shoal.api.display import display_for
    from shoal.api.loggers import loggers_of
    from shoal.comm.join import WorkerAddress, place_from_environment
    from shoal.config.custom import named_code
    from shoal.events.folder import RunFolder, resume_command
    from shoal.launch.run import launch_run

    resumed = RunFolder(folder) if folder else None
    address = WorkerAddress(*place) if place else place_from_environment(os.environ)
    is_first = address is None or address.rank == 0
    with display_for(to_stderr=flags.json, quiet=flags.quiet or not is_first) as display:
        has_loggers = bool(config.output.logger) and is_first
        observer = WithCallbacks(loggers_of(config), display) if has_loggers else display
        try:
            result = launch_run(
                config, observer, resumed, address, flags.join_timeout, observer_of_others=display
            )
            if isinstance(observer, WithCallbacks):
                observer.ended(result)
        except KeyboardInterrupt:  # the second signal: nothing more is saved
            display.stop()
            if display.folder is not None and any(display.folder.checkpoints.glob("step-*[0-9]")):
                command = resume_command(display.folder.path, bool(named_code(config)))
                text.warn(f"stopped at once; resume from the last checkpoint: {command}")
            raise
        if result.rank == 0:
            display.finished(result)
    return config, result


def _settings() -> list[str]:
    from shoal.cli.train.help import settings_page

    return settings_page()


def _settings_of(section: str) -> list[str]:
    from shoal.cli.train.help import settings_of

    return settings_of(section)


COMMAND = Command(
    "train", run, TrainFlags, words="[RECIPE]", settings=("*",), details=_settings, topic=_settings_of
)
