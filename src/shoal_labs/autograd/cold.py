"""The time of the first compilation in a process: what a program that compiles once has to wait for.

`python -P -m shoal_labs.autograd.networks NETWORK BATCH SEED` prints milliseconds, here in fresh processes: the
first compilation loads modules of torch, and a second one takes a fraction of its time.
"""

import os
import subprocess
import sys

from shoal.errors import WorkerError

PROGRAM = "shoal_labs.autograd.networks"
TIMEOUT_S = 120.0


def cold_compile_ms(network: str, batch_size: int, seed: int, processes: int) -> tuple[float, ...]:
    """Milliseconds of a training step's first compilation, over some fresh processes."""
    return tuple(_in_a_fresh_process(network, batch_size, seed) for _ in range(processes))


def _in_a_fresh_process(network: str, batch_size: int, seed: int) -> float:
    command = [sys.executable, "-P", "-m", PROGRAM, network, str(batch_size), str(seed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    made = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment, check=False
    )
    if made.returncode:
        raise WorkerError(f"compiling {network} in a fresh process failed", made.stderr.strip()[-500:], 1)
    return float(made.stdout.split()[-1])
