"""`shoal launch`: run the user's own program on several workers of this machine."""

from dataclasses import dataclass
from typing import Literal

from shoal.cli.command import Command, Given
from shoal.config.flags import Flags
from shoal.config.sections.values import Count, Seconds
from shoal.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class LaunchFlags(Flags):
    """What comes before the program."""

    workers: Count
    """Number of workers."""
    profile: bool = False
    """Record the steps of a torch program, unchanged, as a run folder for `shoal report` and `shoal trace`."""
    launcher: Literal["processes", "threads"] = "processes"
    """What a worker is. As threads, all workers share one process, and a breakpoint works in every rank."""
    group: Literal["auto", "shm", "gloo", "nccl"] = "auto"
    """Communication backend of processes; auto is shared memory on one machine."""
    timeout: Seconds | None = None
    """Seconds after which a worker that makes no progress, or has not joined, counts as lost (default 1800)."""


def run(given: Given[LaunchFlags]) -> int:
    """Run your own program on several workers of this machine.

    PROGRAM is a Python file. It gets its group with `shoal.join()`:

        import shoal, torch
        group = shoal.join()
        total = torch.ones(3)
        group.all_reduce(total).wait()   # with 2 workers, each has [2, 2, 2]

    If a worker fails, the launcher stops all of them, shows the first failure, and exits with its code. The same
    program also runs without a launcher (as a world of one) and under torchrun, unchanged.

    With --profile the program may use torch alone (DDP, torch.distributed). A step ends with `optimizer.step()`.
    When the program has ended, `shoal report` shows where each worker's time went. Under torchrun:

        torchrun --nproc_per_node=2 -m shoal.profile train.py
    """
    from shoal.launch import programs

    (program, *arguments), flags = given.words, given.flags
    if flags.profile and flags.launcher == "threads":
        raise ConfigError("--profile records processes, not threads", "Leave out --launcher threads.")
    if flags.launcher == "threads":
        programs.by_threads(program, arguments, flags.workers, flags.timeout)
    else:
        programs.by_processes(program, arguments, flags.workers, flags.group, flags.timeout, flags.profile)
    return 0


COMMAND = Command("launch", run, LaunchFlags, words="PROGRAM [ARGUMENT …]", stop_at_word=True)
