"""How long `import shoal` and `shoal --help` take, against Python doing nothing at all.

python bench/startup.py [--json]
"""

import subprocess
import sys
from collections.abc import Callable
from statistics import median

from common import interleave, options, report

PYTHON, IMPORT, HELP = "python -c pass", "import shoal", "shoal --help"


def command(*words: str) -> Callable[[], None]:
    """A whole process, from its start to its end."""

    def work() -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)

    return work


def main() -> int:
    """Measure, print, and compare with the targets: 50 ms for the import, a quarter of a second for the help."""
    args = options("How long `import shoal` and `shoal --help` take.", rounds=15).parse_args()
    cases = {
        PYTHON: command("-c", "pass"),
        IMPORT: command("-c", IMPORT),
        HELP: command("-m", "shoal", "--help"),
    }
    seconds = interleave(cases, args.rounds)
    report("start-up", seconds, PYTHON, as_json=args.json)
    python = median(seconds[PYTHON])
    limits = {
        IMPORT: ("python + 0.05 s", python + 0.05),
        HELP: ("3 × python + 0.25 s", 3 * python + 0.25),
    }
    missed = 0
    for name, (what, allowed) in limits.items():
        met = median(seconds[name]) <= allowed
        missed += not met
        if not args.json:
            print(f"  {'met   ' if met else 'MISSED'}   {name} within {what} = {allowed:.3f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
