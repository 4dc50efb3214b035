"""The same program, started by hand and by torchrun, gets a group that works."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.comm.rendezvous.store import listen

PROGRAM = Path(__file__).parent / "joining_program.py"


def free_port():
    with listen("127.0.0.1", 0) as server:
        return server.getsockname()[1]


def environment(**changes):
    return {**os.environ, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in changes.items()}}


def test_by_hand():
    ports = [free_port(), free_port()]
    workers = [
        subprocess.Popen(
            [sys.executable, PROGRAM, f"auto:{ports[0]}", f"gloo:{ports[1]}"],
            env=environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="127.0.0.1", MASTER_PORT=0),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [worker.communicate(timeout=60)[0] for worker in workers]
    for rank in range(2):
        assert outputs[rank].splitlines() == [
            f"{rank} of 2: 1.0 by SharedMemoryGroup",
            f"{rank} of 2: 1.0 by CheckedGroup",
        ]
    assert [worker.returncode for worker in workers] == [0, 0]


@pytest.mark.long
def test_by_torchrun(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    result = subprocess.run(
        [*command, str(PROGRAM), "auto:"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
        cwd=tmp_path,
    )
    assert sorted(result.stdout.splitlines()) == [
        f"{rank} of 2: 1.0 by SharedMemoryGroup" for rank in range(2)
    ], result.stderr
