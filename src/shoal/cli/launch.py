"""`shoal launch`: run the user's own program on several workers of this machine."""

from typing import Literal

from shoal.cli.command import Command, Given
from shoal.config.flags import Flag
from shoal.config.sections.values import Count


def run(given: Given) -> int:
    """Start the program once per worker; the words after it are its own."""
    from shoal.launch import programs

    program, *arguments = given.words
    if given["--launcher"] == "threads":
        programs.by_threads(program, arguments, given["--workers"])
    else:
        programs.by_processes(program, arguments, given["--workers"], given["--group"])
    return 0


COMMAND = Command(
    "launch",
    "Run your own program on several workers of this machine.",
    run,
    words="PROGRAM [ARGUMENT …]",
    stop_at_word=True,
    flags=(
        Flag("--workers", "Number of workers.", Count, required=True),
        Flag(
            "--launcher",
            "What a worker is. With threads, all workers share one process, and a breakpoint works in every rank.",
            Literal["processes", "threads"],
            "processes",
        ),
        Flag(
            "--group",
            "Communication backend of processes; auto is shared memory on one machine.",
            Literal["auto", "shm", "gloo", "nccl"],
            "auto",
        ),
    ),
    details=lambda: (
        "PROGRAM is a Python file. It gets its group with `shoal.join()`:",
        "    import shoal, torch\n"
        "    group = shoal.join()\n"
        "    total = torch.ones(3)\n"
        "    group.all_reduce(total).wait()   # with 2 workers, each has [2, 2, 2]",
        "If a worker fails, the launcher stops all of them, shows the first failure, and exits with its code. The same "
        "program also runs without a launcher (as a world of one) and under torchrun, unchanged.",
    ),
)
