"""Runs that an earlier report or comparison has finished: they are copied instead of trained again."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from shoal.config.read import from_tree, read_recipe
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.events.folder import RunFolder
from shoal.training.result import Result


def earlier_runs(given: str | Path) -> Path:
    """The folder of an earlier report's runs: the one that was given, or its runs/ folder."""
    found = [path for path in (Path(given), Path(given, "runs")) if any(path.glob("*/config.toml"))]
    if not found:
        raise ConfigError(
            f"--runs {given} is not a folder with runs", "Give the folder of an earlier report."
        )
    return found[0]


def earlier_result(config: RunConfig, run: Path) -> Result | None:
    """The result of an earlier run, if it was finished with these settings."""
    source = RunFolder(run)
    if not (source.result.exists() and source.config.exists()):
        return None
    its_config = from_tree(read_recipe(str(source.config)))
    train = replace(its_config.train, test=config.train.test)
    start = Path(train.start)
    if start.name == Path(config.train.start).name and start.resolve().parent == run.resolve().parent:
        # It starts from a run of the same report, which is taken over as well.
        train = replace(train, start=config.train.start)
    # Without a cut in the settings, the run chose its own and wrote it down.
    cut = config.pipeline.cut and its_config.pipeline.cut
    pipeline = replace(its_config.pipeline, cut=cut)
    if replace(its_config, output=config.output, train=train, pipeline=pipeline) != config:
        return None
    try:
        result = Result(**source.read_result())
    except TypeError:  # the record of another version
        return None
    untested = config.train.test and result.test_loss is None
    return None if result.status != "completed" or untested else result


def to_continue_from(runs: Path, earlier: Path | None) -> Path | None:
    """Of this report's runs and the earlier ones, the folder with more finished runs; None if there are none."""
    folders = [folder for folder in (runs, earlier) if folder is not None and any(_finished(folder))]
    return max(folders, key=lambda folder: len(list(_finished(folder))), default=None)


def _finished(folder: Path) -> Iterator[Path]:
    for path in folder.glob("*/result.json"):
        try:
            if RunFolder(path.parent).read_result().get("status") == "completed":
                yield path.parent
        except ConfigError:  # damaged
            continue
