"""How long `shoal --help` takes, against Python doing nothing at all.

python bench/startup.py [--json]
"""

import subprocess
import sys
from collections.abc import Callable
from statistics import median

from common import interleave, options, report


def command(*words: str) -> Callable[[], None]:
    """A whole process, from its start to its end."""

    def work() -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)

    return work


def main() -> int:
    """Measure and print; the promise is 3 × Python's own start plus a quarter of a second."""
    args = options("How long `shoal --help` takes.", rounds=15).parse_args()
    cases = {"python -c pass": command("-c", "pass"), "shoal --help": command("-m", "shoal", "--help")}
    seconds = interleave(cases, args.rounds)
    report("start-up", seconds, "python -c pass", as_json=args.json)
    allowed = 3 * median(seconds["python -c pass"]) + 0.25
    met = median(seconds["shoal --help"]) <= allowed
    if not args.json:
        print(
            f"  {'met   ' if met else 'MISSED'}   shoal --help within 3 × python + 0.25 s = {allowed:.3f} s"
        )
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
