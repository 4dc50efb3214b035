"""`shoal train`: a recipe and flags become a run."""

from collections.abc import Sequence
from pathlib import Path

from shoal.cli import text
from shoal.cli.options import Options, split_options
from shoal.cli.place import PLACE_OPTIONS
from shoal.errors import ConfigError

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
    "strategy.*",
    "exchange.*",
}
"""What --resume lets a user change: how long, where, by how many workers and in what way they work together.

A checkpoint holds one machine's state, whoever saved it, and every strategy stands for one machine: so a run may go on
under another one, with another number of workers, over slow links or with faults. (Where a strategy or an exchange
does not equal one machine, as with `combine = "mean"`, its own sentence says so.) What decides *what* is computed stays
the run's own: data, partition, model, loss, optimizer, schedule, batch size, seed, engine, precision.
"""


def run(argv: Sequence[str]) -> int:
    """Parse, train, report; 130 (or 143) after a stop that can be resumed."""
    options, words = split_options(
        argv, switches=("--json", "--quiet", "--help", "-h"), values=("--resume", *PLACE_OPTIONS)
    )
    if options.has("--help", "-h"):
        from shoal.cli.train_help import train_help

        text.page(train_help())
        return 0
    recipe = words.pop(0) if words and not words[0].startswith("-") else None
    result = _train(options, recipe, words)
    if result.rank > 0:  # started by hand or by torchrun: one worker tells the result
        text.warn(f"rank {result.rank} of {result.workers} is done; rank 0 tells the result")
    elif options.has("--json"):
        text.show(result.to_json())
    if result.status == "interrupted":
        text.warn(f"stopped after step {result.steps}; resume with: shoal train --resume {result.run}")
        return 128 + (result.stopped_by or 0)
    return 0


def _train(options: Options, recipe: str | None, flags: list[str]):
    from shoal.config.read import read

    folder = options.value("--resume")
    if folder is None:
        config = read(recipe, flags)
    elif recipe is not None:
        raise ConfigError(f"--resume goes on with the run in {folder}; it takes no recipe ('{recipe}')")
    else:
        config = _resumed_config(Path(folder), flags)

    from shoal.cli.place import join_timeout_of, place_of, set_threads

    set_threads(options, config.threads)

    from shoal.cli.display import display_for
    from shoal.events.folder import RunFolder
    from shoal.launch.run import launch_run

    place = place_of(options)
    resumed = RunFolder(Path(folder)) if folder else None
    with display_for(to_stderr=options.has("--json"), quiet=options.has("--quiet")) as display:
        result = launch_run(config, display, resumed, place, join_timeout_of(options))
        if result.rank == 0:
            display.finished(result)
    return result


def _resumed_config(folder: Path, flags: list[str]):
    """The settings of the stopped run, with those changes that --resume allows."""
    from shoal.config.read import from_tree, merge, read_flags, read_recipe
    from shoal.events.folder import RunFolder

    changes = read_flags(flags)
    for section, value in changes.items():
        for path in [f"{section}.{key}" for key in value] if isinstance(value, dict) else [section]:
            if path not in MAY_CHANGE and f"{section}.*" not in MAY_CHANGE:
                raise ConfigError(
                    f"--resume goes on with the run's own settings, and {path} is one of them",
                    f"What may change: {', '.join(sorted(MAY_CHANGE))}.",
                )
    config = RunFolder(folder).config
    if not config.exists():
        raise ConfigError(f"{folder} is not a run folder: it has no {config.name}")
    return from_tree(merge(read_recipe(str(config)), changes))
