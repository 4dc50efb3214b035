"""`shoal launch`: run the user's own program on several workers, of this machine or of several."""

import sys
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
    """Number of workers; with --hosts, on each machine."""
    hosts: str | None = None
    """Start the workers on these machines over ssh: a,b or user@a,user@b. Rank 0 is on the first."""
    ssh: str = "ssh"
    """The command that reaches them, with its options: "ssh -p 2222"."""
    python: str | None = None
    """Their Python (default: the path of this one)."""
    folder: str | None = None
    """Their working directory (default: the path of this one)."""
    master: str | None = None
    """The address of the first machine for the others (default: the one that ssh uses)."""
    profile: bool = False
    """Record the steps of a torch program, unchanged, as a run folder for `shoal report` and `shoal trace`."""
    launcher: Literal["processes", "threads"] = "processes"
    """What a worker is. As threads, all workers share one process, and a breakpoint works in every rank."""
    group: Literal["auto", "shm", "gloo", "nccl"] = "auto"
    """Communication backend of processes; auto is shared memory on one machine."""
    timeout: Seconds | None = None
    """Seconds after which a worker that makes no progress, or has not joined, counts as lost (default 1800)."""


def run(given: Given[LaunchFlags]) -> int:
    """Run your own program on several workers, of this machine or of several.

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

    With --hosts PROGRAM may be `shoal` itself; docs/en/cluster.md has an example:

        shoal launch --hosts a,b --workers 2 -- shoal train --strategy ddp
    """
    from shoal.launch import programs

    (program, *arguments), flags = given.words, given.flags
    if flags.profile and flags.launcher == "threads":
        raise ConfigError("--profile records processes, not threads", "Leave out --launcher threads.")
    _check_hosts(flags)
    if flags.hosts is not None:
        from shoal.launch.hosts.ssh import Way

        way = Way(flags.ssh, flags.python or sys.executable, flags.folder or "")
        hosts = flags.hosts.split(",")
        master = flags.master or ""
        programs.on_hosts(given.words, hosts, flags.workers, way, master, flags.group, flags.timeout)
    elif flags.launcher == "threads":
        programs.by_threads(program, arguments, flags.workers, flags.timeout)
    else:
        programs.by_processes(program, arguments, flags.workers, flags.group, flags.timeout, flags.profile)
    return 0


def _check_hosts(flags: LaunchFlags) -> None:
    if flags.hosts is not None and (flags.profile or flags.launcher == "threads"):
        flag = "--profile" if flags.profile else "--launcher threads"
        raise ConfigError(f"{flag} works on one machine", f"Leave out {flag} or --hosts.")
    of_hosts = {"--python": flags.python, "--folder": flags.folder, "--master": flags.master}
    alone = [name for name, value in of_hosts.items() if value is not None]
    if flags.hosts is None and alone:
        raise ConfigError(f"{alone[0]} belongs to other machines", "Name them: --hosts a,b.")


COMMAND = Command("launch", run, LaunchFlags, words="PROGRAM [ARGUMENT …]", stop_at_word=True)
