"""Print the `weights_sha256` of every strategy, group, number of workers and optimizer after a few steps.

    python tools/fingerprints.py [--steps 12] > before.txt

A change that should not alter results must leave this table as it is. Bits differ between kinds of processors and
numbers of threads, so compare tables of one machine only.
"""

import argparse
import json
import subprocess
import sys
import tempfile

GROUPS = {"shm": ("processes", "shm"), "gloo": ("processes", "gloo"), "threads": ("threads", "auto")}
"""By the name in the table: launcher and group."""


def fingerprint(steps: int, strategy: str, optimizer: str, workers: int, group: str) -> str:
    """Train in a process of its own; the fingerprint, or the error."""
    launcher, kind = GROUPS[group]
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--model lenet --data digits --steps {steps} --batch-size 60 --threads 1 --train.test false"
        flags += f" --strategy {strategy} --optimizer {optimizer} --workers {workers}"
        flags += f" --launcher {launcher} --group {kind}" if workers > 1 else ""
        command = [
            sys.executable,
            "-m",
            "shoal",
            "train",
            *flags.split(),
            "--runs-dir",
            folder,
            "--json",
            "--quiet",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
    return (
        json.loads(done.stdout)["weights_sha256"]
        if done.returncode == 0
        else f"error: {done.stderr.strip()[:80]}"
    )


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=12)
    steps: int = parser.parse_args().steps
    for optimizer in ("sgd", "adam"):
        print(
            f"single  -       1  {optimizer:4}  {fingerprint(steps, 'single', optimizer, 1, 'threads')}",
            flush=True,
        )
        for strategy in ("naive", "ddp", "dp"):
            for workers in (1, 2, 3):
                for group in GROUPS if workers > 1 else ("threads",):
                    sha256 = fingerprint(steps, strategy, optimizer, workers, group)
                    name = group if workers > 1 else "-"
                    print(f"{strategy:6}  {name:7} {workers}  {optimizer:4}  {sha256}", flush=True)


if __name__ == "__main__":
    main()
