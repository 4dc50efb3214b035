"""One run of a lab: trained, or taken over from an earlier report where it was finished with the same settings."""

import shutil
from dataclasses import replace
from pathlib import Path

from shoal.config.read import from_tree, read_recipe
from shoal.config.schema import RunConfig
from shoal.events.folder import RunFolder
from shoal.launch.run import launch_run
from shoal.train.observer import Observer
from shoal.train.result import Result


def finished(config: RunConfig, observer: Observer, earlier: Path | None) -> Result:
    """The result of a run, by whatever launcher its config names. A Ctrl-C in it ends the lab, too."""
    result = taken_over(config, earlier) or launch_run(config, observer)
    if result.status != "completed":
        raise KeyboardInterrupt  # the worker ended its run in good order
    return result


def taken_over(config: RunConfig, earlier: Path | None) -> Result | None:
    """The result of an earlier run with these settings, its folder copied to where this one belongs."""
    if earlier is None:
        return None
    source = RunFolder(earlier / config.output.name)
    if not (source.result.exists() and source.config.exists()):
        return None
    its_config = from_tree(read_recipe(str(source.config)))
    same = replace(its_config, output=config.output, train=replace(its_config.train, test=config.train.test))
    if same != config:
        return None
    try:
        result = Result(**source.read_result())
    except TypeError:  # the record of another version
        return None
    if result.status != "completed" or (config.train.test and result.test_loss is None):
        return None
    target = Path(config.output.dir) / config.output.name
    shutil.copytree(source.path, target)
    return replace(result, run=str(target))
