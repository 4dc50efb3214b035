"""How long commands take to start: against Python doing nothing, and runs of 3 steps against `import torch`.

python bench/startup.py [--cpu] [--json]

Leave the machine alone meanwhile, or measure with --cpu: processor time depends less on what else runs.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from tempfile import TemporaryDirectory

from common import Target, interleave, options, report

PYTHON, IMPORT, HELP, TORCH = "python -c pass", "import shoal", "shoal --help", "import torch"
TRAIN = ("train", "quickstart", "--steps", "3")
ONE, TWO, SIXTEEN = (
    f"shoal {' '.join(TRAIN)}",
    "… --strategy ddp --workers 2",
    "… --strategy ddp --workers 16",
)
TARGETS = (
    Target(ONE, TORCH, at_most=1.4),
    Target(TWO, TORCH, at_most=1.9),
    Target(SIXTEEN, TORCH, at_most=4.0),
)


def command(*words: str, folder: str) -> Callable[[], None]:
    """A whole process, from its start to its end; it keeps compiled bytecode, as a user's does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def work() -> None:
        subprocess.run(
            [sys.executable, *words], check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environment
        )

    return work


def processor_s() -> float:
    """Processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure, print, and compare with the targets."""
    parser = options("How long commands take to start.", rounds=9)
    parser.add_argument("--cpu", action="store_true", help="processor time instead of elapsed time")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        cases = {
            PYTHON: command("-c", "pass", folder=folder),
            IMPORT: command("-c", IMPORT, folder=folder),
            HELP: command("-m", "shoal", "--help", folder=folder),
            TORCH: command("-c", TORCH, folder=folder),
            ONE: command("-m", "shoal", *TRAIN, folder=folder),
            TWO: command("-m", "shoal", *TRAIN, "--strategy", "ddp", "--workers", "2", folder=folder),
            SIXTEEN: command("-m", "shoal", *TRAIN, "--strategy", "ddp", "--workers", "16", folder=folder),
        }
        seconds = interleave(cases, args.rounds, 1, clock=processor_s if args.cpu else time.perf_counter)
    title = "start-up, processor time" if args.cpu else "start-up"
    missed = not report(title, seconds, TORCH, TARGETS, args.json)
    python = median(seconds[PYTHON])
    limits = {
        IMPORT: ("python + 0.05 s", python + 0.05),
        HELP: ("3 × python + 0.25 s", 3 * python + 0.25),
    }
    for name, (what, allowed) in limits.items():
        met = median(seconds[name]) <= allowed
        missed |= not met
        if not args.json:
            print(f"  {'met   ' if met else 'MISSED'}   {name} within {what} = {allowed:.3f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
