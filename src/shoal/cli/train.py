"""`shoal train`: train a model as a recipe and flags describe it.

This process may be one worker of several that the user starts by hand, each in a terminal:

    shoal train … --strategy naive --rank 0 --world-size 2 --master 127.0.0.1:29517
    shoal train … --strategy naive --rank 1 --world-size 2 --master 127.0.0.1:29517

The course's scripts write `--n_devices --rank --master_addr --master_port`, and choose a GPU with `--gpu`.
"""

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.comm.rendezvous.jobs import take_job
from shoal.config.flags import Flags
from shoal.config.kinds import Matching, check
from shoal.config.sections.values import Count, Number, Port, Seconds
from shoal.errors import ConfigError
from shoal.launch.process.template import loading
from shoal.printable import counted

if TYPE_CHECKING:
    from shoal.config.schema import RunConfig
    from shoal.training.result import Result


@dataclass(frozen=True)
class TrainFlags(Flags):
    """How the run is shown, and which worker this process is if the user starts each by hand."""

    ALIASES: ClassVar = {"world_size": ("--n_devices",)}

    resume: Path | None = None
    """Continue a run that was stopped: its folder under runs/."""
    trust_code: bool = False
    """Run your own functions (package.module:function) that the recipe or the resumed run names."""
    json: bool = False
    """Print the result as one line of JSON; everything else goes to standard error."""
    quiet: bool = False
    """Show no progress, only the summary at the end."""
    watch: bool = False
    """Serve a page that shows the run while it trains, to this machine alone; its address is the first line."""
    print_config: bool = False
    """Print all settings of the run as a recipe, and train nothing."""
    dry_run: bool = False
    """Check everything, read the data and build the model, and train nothing."""
    rank: Number | None = None
    """Rank of this worker, if you start each worker by hand."""
    world_size: Count | None = None
    """Number of workers that you start."""
    master: Annotated[str, Matching(r".+:[0-9]{1,5}", "host:port", "HOST:PORT")] | None = None
    """Address at which rank 0 listens and the others join."""
    master_addr: str | None = None
    """Host of --master, as the course's scripts write it (default 127.0.0.1)."""
    master_port: Port | None = None
    """Port of --master, as the course's scripts write it."""
    join_timeout: Seconds = 60.0
    """Seconds to wait for the other workers."""
    gpu: Number | None = None
    """The GPU that this worker uses."""


class GivenAddress(NamedTuple):
    """The first fields of `comm.join.WorkerAddress`, which cannot be imported before the number of threads is set."""

    rank: int
    size: int
    host: str
    port: int


def place_of(flags: TrainFlags) -> GivenAddress | None:
    """The place that the flags give; None if they give none."""
    host, port = flags.master_addr or "127.0.0.1", flags.master_port
    if flags.master is not None:
        host, _, port = flags.master.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")  # [::1]:29517 is IPv6
    needed = {"--rank": flags.rank, "--world-size": flags.world_size, "--master": port}
    if flags.master_addr is None and all(value is None for value in needed.values()):
        return None
    for flag, value in needed.items():
        if value is None:
            hint = "To start a worker by hand: --rank N --world-size N --master HOST:PORT"
            raise ConfigError(f"{flag} is required", hint)
    rank, size, port = (int(value or 0) for value in needed.values())
    check(Port, port, "--master")
    if rank >= size:
        raise ConfigError(f"--rank {rank} is not in a world of {size}", f"Ranks go from 0 to {size - 1}.")
    return GivenAddress(rank, size, host, port)


def take_gpu(number: int | None) -> None:
    """Let this process see only the GPU of --gpu; call it after `set_threads`, because it loads torch."""
    if number is None:
        return
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = str(number)

    import torch

    if not torch.cuda.device_count():
        del os.environ["CUDA_VISIBLE_DEVICES"]
        os.environ.update({} if before is None else {"CUDA_VISIBLE_DEVICES": before})
        raise ConfigError(
            f"--gpu {number}: torch sees no such GPU on this machine",
            "GPUs are numbered from 0; `shoal doctor` shows them. Without --gpu the run chooses a device itself.",
        )


def set_threads(place: GivenAddress | None, config: "RunConfig") -> bool:
    """Set OMP_NUM_THREADS, which some libraries read once, when they are loaded; False once torch is loaded.

    If the user asks for no number and all workers are on this machine, each gets its part of the cores: two workers
    with a thread per core each are many times slower.
    """
    if "torch" in sys.modules:
        return False
    # Here, because they import the checks of all settings, which `shoal --help` does not need.
    from shoal.config.checks import is_loopback
    from shoal.launch.cores import threads_per_worker

    workers_here = 1
    if place is not None:
        workers_here = place.size if is_loopback(place.host) else 1
    elif "RANK" in os.environ:  # of torchrun, which sets OMP_NUM_THREADS as well, or of a job
        here = os.environ.get("LOCAL_WORLD_SIZE", "")
        workers_here = int(here) if here.isdecimal() else 1
    elif config.launch.launcher != "threads":
        workers_here = config.launch.workers + config.num_servers
    if config.threads:
        os.environ["OMP_NUM_THREADS"] = str(config.threads)
    elif workers_here > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads_per_worker(workers_here)))
    return True


def run(given: Given[TrainFlags]) -> int:
    """Train a model from a recipe and flags, or resume a run.

        shoal train quickstart                              a small network
        shoal train quickstart --strategy ddp --workers 2   the same by two workers
        shoal train --data mnist --optimizer sgd --lr 0.05  your own choices
        shoal train --resume runs/NAME                      go on with a run

    RECIPE is a TOML file, or the name of one that comes with shoal, such as quickstart. Flags override the recipe. A
    flag that names another choice than the recipe (--optimizer sgd) replaces that whole section.
    """
    if given.flags.print_config or given.flags.dry_run:
        return _only_show(given)
    # What functions of the user's own print must not mix with the JSON.
    with redirect_stdout(sys.stderr) if given.flags.json else nullcontext():
        config, result, exit_code = _train(given)
    if result.rank > 0:  # started by hand or by torchrun
        text.warn(f"rank {result.rank} is done; rank 0 reports the result")
    elif given.flags.json:
        text.show(result.to_json())
    elif result.status == "completed" and not given.flags.quiet:
        from shoal.cli.findings import show_after_training, show_text

        show_text(config, Path(result.run))
        show_after_training(result)
    return exit_code


def _config(given: Given[TrainFlags]) -> "RunConfig":
    from shoal.api.settings import resumed_config
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
        from shoal.api.train import dry_run

        place_of(given.flags)
        take_gpu(given.flags.gpu)
        text.show("\n".join(dry_run(config)))
    return 0


def _train(given: Given[TrainFlags]) -> "tuple[RunConfig, Result, int]":
    flags, place = given.flags, place_of(given.flags)
    if place is None:
        take_job()
    is_started = place is not None or "RANK" in os.environ  # one of many workers
    if flags.resume is not None and is_started:
        config, is_fresh = _resumed_by_many(given, flags.resume, place)
    else:
        config = _config(given)
        is_fresh = set_threads(place, config)
    if flags.watch and (not is_started or (place.rank if place else int(os.environ["RANK"] or 0)) == 0):
        from shoal.watch.child import watched

        with watched() as (url, tell):
            text.show(url)
            return _launch(given, config, place, is_fresh, tell)
    return _launch(given, config, place, is_fresh)


def _resumed_by_many(
    given: Given[TrainFlags], folder: Path, place: GivenAddress | None
) -> "tuple[RunConfig, bool]":
    """The settings of a run that several workers resume; this machine may have lost its folder."""
    from shoal.config.schema import RunConfig
    from shoal.events.folder import RunFolder

    is_lost = not RunFolder(folder).config.exists()
    config = RunConfig() if is_lost else _config(given)
    is_fresh = set_threads(place, config)

    from shoal.comm.join import WorkerAddress
    from shoal.launch.lost_folder import restore_settings

    restore_settings(folder, WorkerAddress(*place) if place else None, given.flags.join_timeout)
    return _config(given) if is_lost else config, is_fresh


def _launch(
    given: Given[TrainFlags],
    config: "RunConfig",
    place: GivenAddress | None,
    is_fresh: bool,
    when_started: Callable[[Path], None] = lambda _: None,
) -> "tuple[RunConfig, Result, int]":
    flags, folder = given.flags, given.flags.resume
    is_started = place is not None or "RANK" in os.environ
    if is_fresh and not flags.quiet and not is_started:
        text.show(_beginning(config))
    with loading() if is_fresh else nullcontext():
        take_gpu(flags.gpu)

        from shoal.api.callbacks import WithCallbacks
        from shoal.api.display import display_for
        from shoal.api.loggers import loggers_of
        from shoal.cli.findings import show_interrupted
        from shoal.comm.join import WorkerAddress, own_place
        from shoal.config.schema import named_code
        from shoal.events.folder import RunFolder, resume_command
        from shoal.launch.run import launch_run
    if config.memory.budget is not None and folder is None:
        from shoal.memory.budget import budgeted

        config, why = budgeted(config, is_one_worker=place is not None)
        text.warn(why)
    resumed = RunFolder(folder) if folder else None
    address = WorkerAddress(*place) if place else own_place()
    is_first = address is None or address.rank == 0
    with display_for(to_stderr=flags.json, quiet=flags.quiet or not is_first) as display:
        display.when_started = when_started
        has_loggers = bool(config.output.logger) and is_first
        observer = WithCallbacks(loggers_of(config), display) if has_loggers else display
        try:
            result = launch_run(
                config,
                observer,
                resumed,
                address,
                flags.join_timeout,
                copies="fresh" if is_fresh and flags.gpu is None else "never",  # choosing a GPU may use it
                observer_of_others=display,
            )
            if isinstance(observer, WithCallbacks):
                observer.ended(result)
            if result.rank == 0:
                display.finished(result)
            display.stop()
            # In here, so that a second signal at the end of the run does not take the place of the sentence.
            exit_code = show_interrupted(config, result) if result.status == "interrupted" else 0
        except KeyboardInterrupt:  # the second signal: nothing more is saved
            display.stop()
            if display.folder is not None and any(display.folder.checkpoints.glob("step-*[0-9]")):
                command = resume_command(display.folder.path, bool(named_code(config)))
                text.warn(f"stopped at once; resume from the last checkpoint: {command}")
            raise
    return config, result, exit_code


def _beginning(config: "RunConfig") -> str:
    """The first line: what takes the next seconds."""
    workers, servers = config.launch.workers, config.num_servers
    if workers + servers == 1:
        return "loading torch"
    also = f" and {counted(servers, 'server')}" if servers else ""
    return f"starting {counted(workers, 'worker')}{also}"


USED_MOST = (
    "--data",
    "--model",
    "--optimizer",
    "--lr",
    "--batch-size",
    "--epochs",
    "--strategy",
    "--workers",
    "--device",
    "--precision",
    "--seed",
    "--validation",
    "--name",
    "--resume",
    "--dry-run",
)
COMMAND = Command("train", run, TrainFlags, words="[RECIPE]", settings=("*",), used_most=USED_MOST)
