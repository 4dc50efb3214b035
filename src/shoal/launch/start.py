"""Start a run, however this process itself was started: alone, as a launcher, by hand as one rank, or by torchrun."""

import os
from collections.abc import Callable
from dataclasses import replace

from shoal.comm.join import Place, join, place_from_environment
from shoal.config.schema import RunConfig
from shoal.events.folder import RunFolder
from shoal.launch import processes, threads
from shoal.launch.facts import facts_of
from shoal.train import worker
from shoal.train.observer import Observer, Silent
from shoal.train.result import Result

LAUNCHERS: dict[str, Callable[[RunConfig, Observer, RunFolder | None], Result]] = {
    "processes": processes.launch,
    "threads": threads.launch,
}


def start(
    config: RunConfig, observer: Observer, resumed: RunFolder | None = None, place: Place | None = None
) -> Result:
    """Train what the config describes.

    With a place in the world, given by hand or by torchrun's environment, this process is that one worker. Without
    one it trains alone, or launches as many workers as the config asks for.
    """
    place = place or place_from_environment(os.environ)
    if place is not None:
        return _as_one_of(place, config, observer, resumed)
    if config.launch.workers > 1:
        return LAUNCHERS[config.launch.launcher](config, observer, resumed)
    return worker.resume(resumed, config, observer) if resumed else worker.run(config, observer)


def _as_one_of(place: Place, config: RunConfig, observer: Observer, resumed: RunFolder | None) -> Result:
    config = replace(config, launch=replace(config.launch, workers=place.size))
    watcher = observer if place.rank == 0 else Silent()
    group = join(place, kind=config.launch.group, facts=facts_of(config))
    try:
        if resumed:
            return worker.resume(resumed, config, watcher, group)
        return worker.run(config, watcher, group)
    finally:
        group.close()
