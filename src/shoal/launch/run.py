"""Launch a run, however this process itself was started: alone, as a launcher, by hand as one rank, or by torchrun."""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

from shoal.comm.join import WorkerAddress, own_place
from shoal.comm.liveness.limits import TRAIN_LIMIT_S
from shoal.config.checks import LOOPBACK, check_resources, check_world
from shoal.config.custom import no_exit
from shoal.config.mesh import check_divided, parse_mesh
from shoal.config.schema import RunConfig, named_code
from shoal.events.folder import RunFolder
from shoal.launch import training
from shoal.launch.one_worker import joined_group
from shoal.launch.process import forks
from shoal.strategies.exchange.build import check_exchange
from shoal.strategies.server.settings import ServerConfig
from shoal.training import worker
from shoal.training.observer import Observer, Silent
from shoal.training.result import Result
from shoal.training.setup.build_layout import check_division

LAUNCHERS: dict[str, Callable[[RunConfig, Observer, RunFolder | None, Sequence[RunConfig]], Result]] = {
    "processes": training.by_processes,
    "threads": training.by_threads,
    "netns": training.by_virtual_machines,
}


def launch_run(
    config: RunConfig,
    observer: Observer,
    resumed: RunFolder | None = None,
    place: WorkerAddress | None = None,
    join_timeout_s: float = TRAIN_LIMIT_S,
    then: Sequence[RunConfig] = (),
    copies: Literal["never", "fresh", "always"] = "never",
    observer_of_others: Observer | None = None,
) -> Result:
    """Train what the config describes.

    With a place in the world, given by hand or by torchrun's environment, this process is that one worker and waits
    `join_timeout_s` for the others. Without one it trains alone, or launches the workers that the config asks for:
    these make the runs `then` as well. With a memory budget one worker is launched, too.

    Worker processes are copies of this one with `copies="always"`. With "fresh", which says that this process has
    computed nothing, they are copies if nothing runs beside this thread and it has not loaded the user's code.
    `observer` sees rank 0, `observer_of_others` another rank that this process is.
    """
    place = place or own_place()
    size = check_run(config, place)
    if place is not None:
        with _recorded_for_torchrun():
            config = replace(config, launch=replace(config.launch, workers=size))
            with (
                no_exit("a function of your own"),
                joined_group(config, resumed, place, join_timeout_s) as group,
            ):
                shown = observer if place.rank == 0 else observer_of_others or Silent()
                return worker.run(config, shown, group, resumed)
    if config.launch.workers + config.num_servers > 1 or _needs_new_process(config):
        launch = LAUNCHERS[config.launch.launcher]
        if config.launch.launcher == "processes" and copies == "always":
            launch = training.by_forks
        elif config.launch.launcher == "processes" and copies == "fresh" and _may_be_copied(config):
            launch = partial(training.by_forks, fresh=True)
        return launch(config, observer, resumed, then)
    with no_exit("a function of your own"):
        return worker.run(config, observer, resumed=resumed)


def _needs_new_process(config: RunConfig) -> bool:
    """Whether one worker trains in a process of its own: settings for a memory budget were tried in such processes.

    In this one, gaps that earlier runs have left in the heap would be used and counted.
    """
    return config.memory.budget is not None and config.launch.launcher == "processes"


def _may_be_copied(config: RunConfig) -> bool:
    """Whether copies of this process equal new ones: they load the user's code themselves; a budget counts the heap."""
    has_loaded_code = any(code.name.partition(":")[0] in sys.modules for _, code in named_code(config))
    return forks.is_alone() and not has_loaded_code and config.memory.budget is None


def check_run(config: RunConfig, place: WorkerAddress | None = None) -> int:
    """Refuse what cannot run here, before anything starts; return the number of workers that train."""
    size = place.size - config.num_servers if place else config.launch.workers
    if isinstance(config.sync, ServerConfig):
        config.sync.check_workers(size)
    check_resources(config, 1 if place else size + config.num_servers)
    check_world(config, size, place.host if place else LOOPBACK)
    check_divided(config.mesh, size, is_started=place is not None)
    check_exchange(config.exchange, parse_mesh(config.mesh, size).get("data", 1) if config.mesh else size)
    if place is None and size + config.num_servers > 1:
        check_division(config)
    return size


@contextmanager
def _recorded_for_torchrun() -> Generator[None]:
    """Write an error to the file that torchrun's closing summary reads."""
    try:
        yield
    except Exception as error:
        if "TORCHELASTIC_ERROR_FILE" in os.environ:
            from torch.distributed.elastic.multiprocessing.errors import get_error_handler

            get_error_handler().record_exception(error)
        raise
