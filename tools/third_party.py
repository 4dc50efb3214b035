"""Run the programs in `examples/third_party/` with shoal's wrapper and with torch's, and compare their weights.

    make test-third-party

Each program runs twice with two processes on gloo. Both runs must end with exit code 0 and the same sha256 of the
weights. The packages that these programs need are not part of the development environment.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent.parent / "examples" / "third_party"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
STARTED_BY: dict[str, tuple[str, ...]] = {
    "lightning_ddp.py": (),  # starts its processes itself
    "accelerate_ddp.py": TORCHRUN,
    "trainer_ddp.py": TORCHRUN,
}


def weights_sha256(program: str, wrapper: str) -> str:
    """What the program prints at the end; exits with its output if it fails."""
    command = [sys.executable, *STARTED_BY[program], str(PROGRAMS / program), "--wrapper", wrapper]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    found = re.search(r"weights sha256 ([0-9a-f]{64})", done.stdout)
    if done.returncode or not found:
        sys.exit(
            f"{program} --wrapper {wrapper} ended with code {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return found[1]


def main() -> None:
    """One line for each program; exit code 1 if the weights of any differ."""
    equal = True
    for program in STARTED_BY:
        ours, torchs = weights_sha256(program, "shoal"), weights_sha256(program, "torch")
        equal = equal and ours == torchs
        verdict = "same bits" if ours == torchs else "DIFFERENT"
        print(f"{program:18}  shoal {ours[:16]}  torch {torchs[:16]}  {verdict}", flush=True)
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
