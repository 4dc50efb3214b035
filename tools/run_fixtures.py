"""Write a small unfinished run of every strategy, and the weights that it ends with: runs that later versions resume.

    python tools/run_fixtures.py tests/training/saved_before/runs-0.1.0.tar.xz

A change of the format of run folders gets a new archive; the old ones stay.
"""

import os
import shutil
import sys
import tarfile
import tempfile
from importlib import import_module
from pathlib import Path

from fingerprints import ROWS, Row, in_a_copy

STEPS, SAVED_AT = 4, 2
COMMON = (
    f"--data synthetic --data.samples 48 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 6,5 --steps {STEPS} "
    f"--batch-size 12 --threads 1 --device cpu --checkpoint-every {SAVED_AT} --checkpoint.keep 2 --runs-dir runs"
)


def write(row: Row, place: str) -> Path:
    """The run's folder, as a run leaves it that was stopped at its first checkpoint."""
    name = row.name.replace(" ", "-").replace("×", "x")
    flags = row.flags.replace("--micro-batch 4", "--micro-batch 3")
    if not in_a_copy(f"train {COMMON} {flags} {place} --name {name} --json --quiet"):
        raise SystemExit(f"{row.name} failed")
    run = Path("runs") / name
    shutil.rmtree(run / "checkpoints" / f"step-{STEPS:06d}")
    (run / "result.json").unlink()
    (run / "model.safetensors").rename(run / "expected.safetensors")
    return run


def main() -> int:
    """Write the archive."""
    target = Path(sys.argv[1]).resolve()
    os.environ["OMP_NUM_THREADS"] = "1"
    for module in ("shoal.cli.main", "shoal.launch.run", "shoal.training.worker"):
        import_module(module)  # with torch, once, before the copies
    with tempfile.TemporaryDirectory() as folder, tarfile.open(target, "w:xz") as archive:
        os.chdir(folder)
        for row in ROWS:
            launcher = "threads" if "threads" in row.groups else f"processes --group {row.groups[0]}"
            run = write(row, "" if row.workers == (1,) else f"--workers {row.workers[0]} --launcher {launcher}")
            archive.add(run, run.name)
            print(run.name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
