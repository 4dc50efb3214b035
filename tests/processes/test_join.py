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


BESIDE_TORCH = """
import sys, torch, torch.distributed as dist, shoal
rank, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
group = shoal.join()
assert shoal.join() is group
assert shoal.join(kind="gloo").kind == "gloo"
total = torch.tensor(float(group.rank))
group.all_reduce(total).wait()
print(f"{group.rank} of {group.size}: {total.item()}")
group.barrier().wait()
"""


@pytest.mark.long
def test_in_a_program_that_has_made_torchs_group_without_a_launcher():
    """As torch.multiprocessing.spawn starts it: the variables of launchers are not set."""
    port = free_port()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", BESIDE_TORCH, str(rank), str(port)],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [worker.communicate(timeout=60)[0] for worker in workers]
    assert outputs == [f"{rank} of 2: 1.0\n" for rank in range(2)]


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
