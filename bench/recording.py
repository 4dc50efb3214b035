"""What recording costs a whole run: extra processor seconds ÷ processor seconds, of `--profile` and of `--trace`.

    python bench/recording.py [--rounds 15] [--steps 400] [--json]

Each pair makes a run with recording and one without it, in turns, first one and then the other. Processor time counts
all workers from their start to their end. The interval of the median pair has 99.9 % confidence from 11 pairs on.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from common import machine, options
from shoal.report.paired import median_difference
from startup import processor_s

AT_MOST = 0.03
PROGRAM = Path(__file__).resolve().parents[1] / "tests" / "findings" / "planted_program.py"
TRAIN = "train --model lenet --data digits --strategy ddp --workers 2 --threads 1 --quiet --train.test false"


def commands(steps: int) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """Each way of recording: the command without it, and with it."""
    program, train = [str(PROGRAM), "none", str(steps)], [*TRAIN.split(), "--steps", str(steps)]
    launch = ["launch", "--workers", "2"]
    return {
        "--profile": ([*launch, *program], [*launch, "--profile", *program]),
        "--trace": (train, [*train, "--trace"]),
    }


def seconds_of(words: Sequence[str]) -> float:
    """The processor seconds of a command and of all processes that it starts."""
    with TemporaryDirectory() as folder:
        before, environment = processor_s(), os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, "-m", "shoal", *words],
            check=True,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        return processor_s() - before


def main() -> int:
    """Measure, print, and compare with the target; 1 if it is missed."""
    parser = options(f"What recording costs of a run's processor time: at most {AT_MOST:.0%}.", rounds=15)
    parser.add_argument("--steps", type=int, default=400, help="steps of each run (default %(default)s)")
    args = parser.parse_args()
    met = True
    for name, rivals in commands(args.steps).items():
        parts: list[float] = []
        plain_s = 0.0
        for number in range(args.rounds):
            order = (0, 1) if number % 2 else (1, 0)
            found = {place: seconds_of(rivals[place]) for place in order}
            plain, recorded = found[0], found[1]
            plain_s += plain / args.rounds
            parts.append(recorded / plain - 1)
        cost = median_difference(parts)
        half = None if cost.basis == "none" else 2 * cost.spread
        met &= cost.value <= AT_MOST
        record = {
            "case": name,
            "pairs": args.rounds,
            "plain_s": plain_s,
            "cost": cost.value,
            "half_interval": half,
        }
        if args.json:
            print(json.dumps(record | {"machine": machine()}))
        else:
            interval = "interval unknown" if half is None else f"± {100 * half:.2f}"
            print(
                f"{name:10} {100 * cost.value:+.2f} % {interval}, of {plain_s:.1f} processor seconds "
                f"({args.rounds} pairs; at most {AT_MOST:.0%})"
            )
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
