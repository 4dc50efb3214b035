"""Print the `weights_sha256` of every strategy after a few steps, and of the same run resumed in the middle.

    python tools/fingerprints.py > after.txt                     all: about five minutes on two cores
    python tools/fingerprints.py --only zero pipeline            those whose name begins so
    diff tools/fingerprints.txt after.txt

A change that should not alter results must leave this table as it is. `tools/fingerprints.txt` is the table of one
x86-64 processor: bits differ between kinds of processors, so on another one compare two tables of your own.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import NamedTuple

STEPS, RESUMED_AT = 8, 4
SCHEDULES = ("sequential", "gpipe", "1f1b", "zero-bubble", "async")
COMMON = (
    f"--data synthetic --data.samples 480 --data.shape 1,28,28 --steps {STEPS} --batch-size 48 --threads 1 "
    f"--device cpu --train.test false --checkpoint-every {RESUMED_AT} --checkpoint.keep 2"
)


class Row(NamedTuple):
    """A run of the table."""

    name: str
    flags: str
    workers: tuple[int, ...] = (2, 4)
    groups: tuple[str, ...] = ("threads",)
    """Threads, or processes over this group."""


ROWS = (
    Row("single", "--strategy single", (1,)),
    Row("single sgd", "--strategy single --optimizer sgd --momentum 0.9", (1,)),
    Row("naive", "--strategy naive", (2, 3, 4), ("threads", "shm", "gloo")),
    Row("naive parameters", "--strategy naive --aggregate parameters"),
    Row("ddp", "--strategy ddp", (2, 3, 4), ("threads", "shm", "gloo")),
    Row("ddp sgd", "--strategy ddp --optimizer sgd --momentum 0.9"),
    Row("dp", "--strategy dp", groups=("threads", "shm")),
    Row("onecopy", "--strategy onecopy", groups=("threads", "shm")),
    *(Row(f"zero {stage}", f"--strategy zero --strategy.stage {stage}") for stage in (1, 2)),
    Row("zero 3", "--strategy zero --strategy.stage 3", groups=("threads", "shm", "gloo")),
    Row("local", "--strategy local --strategy.every 2"),
    Row(
        "local diloco",
        "--strategy local --strategy.every 2 --strategy.outer_lr 0.7 --strategy.outer_momentum 0.9",
    ),
    Row("server bsp", "--strategy server --strategy.mode bsp", groups=("threads", "shm")),
    *(Row(f"pipeline {name}", f"--strategy pipeline --pipeline.schedule {name}") for name in SCHEDULES),
    Row("tensor", "--strategy tensor --model mlp"),
    Row("rpc", "--strategy rpc", groups=("gloo",)),
    Row("mesh data × pipeline", "--mesh data=2,pipeline=2 --sync zero", (4,)),
    Row("mesh data × tensor", "--mesh data=2,tensor=2 --sync onecopy --model mlp", (4,)),
    *(
        Row(f"codec {name}", f"--strategy ddp --exchange compressed:{name}")
        for name in ("int8", "topk", "powersgd")
    ),
    Row("exchange ring", "--strategy ddp --exchange by:ring"),
    Row("prune", "--strategy ddp --prune magnitude --prune.every 2"),
    Row("invariant", "--strategy ddp --reduction invariant --micro-batch 4"),
    Row("engine static", "--strategy ddp --engine static"),
)


def in_a_copy(work: str) -> str:
    """Run a command of shoal in a copy of this process, which has loaded torch; its standard output, or its error."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as said:
            from shoal.cli.main import main

            code = main(work.split())
        with os.fdopen(write, "w") as answer:
            answer.write(printed.getvalue() if code == 0 else "")
        if code:
            os.write(2, said.getvalue().encode())
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as answer:
        printed = answer.read()
    os.waitpid(pid, 0)
    return printed


def weights_of(printed: str) -> str:
    """The fingerprint of a run that has printed its result."""
    return json.loads(printed)["weights_sha256"] if printed else "failed"


def fingerprints(row: Row, workers: int, group: str) -> tuple[str, str]:
    """(fingerprint of a whole run, of the run resumed from its first checkpoint)."""
    place = "--launcher threads" if group == "threads" else f"--launcher processes --group {group}"
    place = "" if workers == 1 else f"--workers {workers} {place}"
    model = "" if "--model" in row.flags else "--model lenet"
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        work = f"train {COMMON} {model} {row.flags} {place} --runs-dir {folder} --name run --json --quiet"
        whole = weights_of(in_a_copy(work))
        if whole == "failed":
            return whole, ""
        shutil.rmtree(run / "checkpoints" / f"step-{STEPS:06d}")
        for name in ("result.json", "model.safetensors"):
            (run / name).unlink()
        return whole, weights_of(in_a_copy(f"train --resume {run} --json --quiet"))


def lines(chosen: list[str]) -> Iterator[str]:
    """The table."""
    for row in ROWS:
        if chosen and not row.name.startswith(tuple(chosen)):
            continue
        for workers in row.workers:
            for group in row.groups:
                whole, resumed = fingerprints(row, workers, group)
                after = "resumed: same" if whole == resumed else f"resumed: {resumed[:16]}"
                yield f"{row.name:22} {workers} {group:8} {whole[:16]:16} {after}"


def main() -> int:
    """Print a line for each run; 1 if one failed, or was not the same when it was resumed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[])
    chosen: list[str] = parser.parse_args().only
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in ("shoal.cli.main", "shoal.launch.run", "shoal.training.worker"):
        import_module(module)  # with torch, once, before the copies

    ends_well = True
    for line in lines(chosen):
        print(line, flush=True)
        ends_well &= line.endswith("same")
    return 0 if ends_well else 1


if __name__ == "__main__":
    sys.exit(main())
