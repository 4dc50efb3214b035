"""Plants causes of slow steps in runs and programs, and counts how often the right one is the first finding.

    python tests/findings/planted_causes.py [NAME …]         each cause, or those whose names are given
    python tests/findings/planted_causes.py --healthy 50     runs without a cause: nothing but `busy` may be found

On a busy machine the findings may only say so: such a run is counted as busy, and made again up to --tries times.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from shoal.compare.comparison import compare
from shoal.compare.one_run import findings
from shoal.compare.remark import Remark
from shoal.errors import ShoalError
from shoal.words import read_words

HERE = Path(__file__).resolve().parent
WORDS = read_words("en", "shoal.compare")
SHOAL = (sys.executable, "-m", "shoal")
PROGRAM, LOOPS = (str(HERE / f"planted_{name}.py") for name in ("program", "loops"))
PROFILE = (*SHOAL, "launch", "--profile", "--workers", "2", "--")
TORCHRUN = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc_per_node=2",
    "-m",
    "shoal.profile",
)
TRAIN = (
    *SHOAL, "train", "--workers", "2", "--threads", "1", "--model", "lenet", "--data", "digits", "--batch-size", "128",
    "--steps", "60", "--trace", "--quiet", "--train.test", "false",
)  # fmt: skip
OWN_DATA = ("--data", "planted_setup:slow_data", "--model", "planted_setup:net")
SLOW_LOOPBACK = (
    "unshare", "--net", "sh", "-c",
    'ip link set lo up && tc qdisc add dev lo root tbf rate 50mbit burst 256kb limit 20mb && exec "$@"', "sh",
)  # fmt: skip
"""Runs a command where messages between processes are slow; needs root. No other program's messages are."""


class Planted(NamedTuple):
    """A cause, and what the first finding about it should be."""

    command: Sequence[str]
    kind: str
    rank: int | None = None
    """The worker that the finding should name."""


def _program(
    cause: str, kind: str, rank: int | None = None, steps: int = 50, before: Sequence[str] = ()
) -> Planted:
    return Planted((*before, *PROFILE, PROGRAM, cause, str(steps)), kind, rank)


def _train(flags: str, kind: str, rank: int | None = None, *more: str) -> Planted:
    return Planted((*TRAIN, *flags.split(), *more), kind, rank)


CASES: dict[str, Planted] = {
    "program: slow forward": _program("slow forward", "waits", 1),
    "program: more work": _program("more work", "waits", 1),
    "program: slow between steps": _program("between steps", "waits", 1),
    "program: slow loader on one rank": _program("loader on one", "loads", 1),
    "program: starved loaders": _program("loader", "loads"),
    "program: larger batches on one rank": _program("batches", "batches", 1),
    "program: evaluation on one rank": _program("evaluation", "evaluates", 0),
    "program: checkpoints on one rank": _program("save on one", "saves", 0),
    "program: checkpoints": _program("save", "saves"),
    "program: unused parameters": _program("unused", "unused"),
    "program: search for unused parameters": _program("search", "unused"),
    "program: small buckets": _program("buckets", "buckets"),
    "program: a call for each parameter": _program("call for each", "buckets"),
    "program: slow link": _program("link", "link", None, 30, SLOW_LOOPBACK),
    "program: memory near its limit": _program("memory", "memory"),
    "nanoGPT's loop: slow rank": Planted((*TORCHRUN, LOOPS, "nanogpt", "slow", "30"), "waits", 1),
    "FSDP2: slow rank": Planted((*PROFILE, LOOPS, "fsdp2", "slow", "30"), "waits", 1),
    "our wrapper: slow rank": Planted((*PROFILE, LOOPS, "ours", "slow", "30"), "waits", 1),
    "train: slow rank": _train("--bottleneck rank=1,slowdown=5", "waits", 1),
    "train: delayed rank": _train("--strategy zero --bottleneck rank=0,delay=90-100ms", "waits", 0),
    "train: larger share": _train("--bottleneck rank=1,share=0.9", "batches", 1),
    "train: slow link": _train("--link all:10mbit", "link"),
    "train: slow samples": _train("--data.loaders 0", "loads", None, *OWN_DATA),
    "train: small buckets": _train(
        "--model mlp --model.hidden 32,32,32,32,32,32,32,32,32,32,32,32 --strategy ddp --strategy.bucket_mib 0.0001 "
        "--strategy.first_bucket_mib 0.0001",
        "buckets",
    ),
    "train: checkpoints": _train("--checkpoint.every 1", "saves"),
    "train: slow disk": _train(
        "--checkpoint.every 5", "saves", None, "--model", "planted_setup:on_slow_disk"
    ),
    "train: memory near its limit": _train("", "memory", None, "--model", "planted_setup:near_the_limit"),
}


def healthy(number: int) -> Planted:
    """A run without a cause: another model, strategy and number of workers each time.

    It saves at its end alone: after every one of its short epochs, checkpoints would really cost a fifth of the time.
    """
    models = ("lenet", "mlp --model.hidden 1024,1024", "resnet18 --data.samples 512")
    ways = (
        "single --workers 1", "ddp --workers 2", "zero --workers 2", "onecopy --workers 2", "naive --workers 2",
        "local --strategy.every 4 --workers 2", "ddp --workers 3", "zero --strategy.stage 3 --workers 2",
    )  # fmt: skip
    model, way = [*product(models, ways)][number % (len(models) * len(ways))]
    steps = 24 if model.startswith("resnet") else 60
    flags = f"--model {model} --strategy {way} --steps {steps} --checkpoint.every {steps} --seed {number}"
    if model.startswith("resnet"):
        flags += " --data synthetic --data.shape 3,16,16"
    size = {"lenet": 512, "mlp": 2048}.get(model.split()[0], 64)
    return Planted((*TRAIN, "--batch-size", str(size), *flags.split()), "")


def findings_of(command: Sequence[str], folder: Path, assume_idle: bool = False) -> list[Remark]:
    """Make a run in a folder; what its findings are, or would be if no other program had run."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    made = list((folder / "runs").glob("*"))
    if ended.returncode or len(made) != 1:
        raise RuntimeError(f"{' '.join(command)} failed:\n{ended.stdout[-1000:]}\n{ended.stderr[-3000:]}")
    run = compare(made)
    if assume_idle:
        run = replace(run, entries=(replace(run.entries[0], not_scheduled=0.0),))
    return findings(run, WORDS)


def verdict(planted: Planted, found: Sequence[Remark]) -> str:
    """`right`, `wrong` or `busy`. Without a cause, the finding that communication costs little is right as well."""
    first = next((each for each in found if each.tone != "holds"), None)
    if not planted.kind:
        return "right" if first is None else "busy" if first.kind == "busy" else "wrong"
    if first is None or first.kind != planted.kind:
        return "busy" if first and first.kind == "busy" else "wrong"
    named = planted.rank is None or f"rank {planted.rank} " in first.claim
    return "right" if named else "wrong"


def tried(planted: Planted, tries: int, assume_idle: bool = False) -> tuple[str, list[Remark]]:
    """The verdict on a run, which is made again while the machine is busy."""
    judged, found = "busy", list[Remark]()
    while judged == "busy" and tries:
        tries -= 1
        folder = Path(tempfile.mkdtemp(prefix="planted-"))
        try:
            found = findings_of(planted.command, folder, assume_idle)
        finally:
            shutil.rmtree(folder)
        judged = verdict(planted, found)
    return judged, found


def main() -> int:
    """Make the runs and print a line for each; 1 if more are wrong than may be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--healthy", type=int, default=0, metavar="N", help="make N runs without a cause instead"
    )
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first healthy run")
    parser.add_argument(
        "--tries", type=int, default=3, help="runs of each on a busy machine (default %(default)s)"
    )
    parser.add_argument("--assume-idle", action="store_true", help="judge as if no other program had run")
    args = parser.parse_args()
    cases = {name: case for name, case in CASES.items() if not args.names or name in args.names}
    if args.healthy:
        numbers = range(args.first, args.first + args.healthy)
        cases = {f"healthy {number}": healthy(number) for number in numbers}
    counts: Counter[str] = Counter()
    for name, planted in cases.items():
        try:
            judged, found = tried(planted, args.tries, args.assume_idle)
        except (RuntimeError, subprocess.TimeoutExpired, ShoalError) as error:
            judged, found = "wrong", []
            print(f"        {error}", file=sys.stderr)
        counts[judged] += 1
        said = ", ".join(each.kind for each in found) or "nothing"
        flags = " ".join(planted.command[len(TRAIN) :]) if args.healthy else planted.kind
        print(f"{judged:6}  {name:40} {flags:12} found: {said}", flush=True)
        if judged == "wrong" and found:
            print(f"        {found[0].claim} {found[0].numbers}", flush=True)
    print(
        f"{counts['right']} of {sum(counts.values())} right, {counts['busy']} busy, {counts['wrong']} wrong"
    )
    return int(counts["wrong"] > (0 if args.healthy else len(cases) // 10))


if __name__ == "__main__":
    raise SystemExit(main())
