"""Collectives on this machine: `python bench/collectives.py --group shm,gloo -b 1K -e 64M -f 4`.

`gloo` is torch's own backend without anything of ours around it (the rival); `gloo+checked` is what we
ship. `mpi` takes part when mpi4py is importable: the workers are then started by mpiexec.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import Tensor

from shoal.comm.benchmark import Contender, Plan, contenders, measure, sizes_between
from shoal.comm.benchmark_tables import as_csv, as_json, as_table, load_note
from shoal.comm.checked import join_torch
from shoal.comm.group import Group
from shoal.comm.shared_memory import SharedMemoryGroup
from shoal.comm.store import connect, listen, serve
from shoal.comm.torch_group import TorchGroup
from shoal.comm.traced import traced

UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


def num_bytes(text: str) -> int:
    """A size such as 1K or 64M."""
    unit = UNITS.get(text[-1].upper(), 1)
    return int(text[:-1] if unit > 1 else text) * unit


def make_group(name: str, port: int, rank: int, size: int) -> Group:
    """The group of that name, as shipped."""
    store = dist.PrefixStore(name, connect("127.0.0.1", port, rank, 60))
    if name in ("shm", "referee"):
        return traced(SharedMemoryGroup.join(store, rank, size))
    if name == "gloo+checked":
        return traced(join_torch(store, rank, size))
    return TorchGroup(store, rank, size)


def mpi_contender() -> Contender:
    """MPI's own all-reduce."""
    from mpi4py import MPI  # pyright: ignore[reportMissingImports]

    def run(piece: Tensor, whole: Tensor) -> None:
        del whole
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, piece.numpy())

    return Contender("mpi", torch.empty, run)


def worker(options: argparse.Namespace) -> None:
    """One worker: rank 0 prints."""
    torch.set_num_threads(1)
    rank = int(os.environ["PMI_RANK"]) if "PMI_RANK" in os.environ else options.rank
    note = load_note(options.workers)
    plan = Plan(
        operation=options.op,
        sizes=sizes_between(options.begin, options.end, options.factor),
        seconds_per_size=options.seconds,
    )
    referee = make_group("referee", options.port, rank, options.workers)
    names = [name for name in options.group.split(",") if name != "mpi"]
    groups = {name: make_group(name, options.port, rank, options.workers) for name in names}
    algorithms = [name for name in options.algorithm.split(",") if name]
    entries = contenders(groups, plan, algorithms)
    if "mpi" in options.group.split(","):
        entries.append(mpi_contender())
    rows = measure(referee, plan, entries)
    if rank == 0:
        if options.json:
            print(as_json(rows, plan, options.workers, note))
        elif options.csv:
            print(as_csv(rows), end="")
        else:
            print(as_table(rows, note))
    referee.barrier().wait()
    for group in (*groups.values(), referee):
        group.close()


def main() -> None:
    """Start the workers, or be one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--op", default="all_reduce")
    parser.add_argument("--group", default="shm,gloo")
    parser.add_argument("--algorithm", default="")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("-b", "--begin", type=num_bytes, default=1024)
    parser.add_argument("-e", "--end", type=num_bytes, default=64 * 1024**2)
    parser.add_argument("-f", "--factor", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0, help="time per size")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--csv", action="store_true")
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.port:
        worker(options)
        return
    with_mpi = "mpi" in options.group.split(",")
    if with_mpi and importlib.util.find_spec("mpi4py") is None:
        sys.exit("mpi4py is not installed: pip install mpich mpi4py")
    store = serve(listen("127.0.0.1", 0), 60)
    command = [sys.executable, *sys.argv, "--port", str(store.port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if with_mpi:
        mpiexec = shutil.which("mpiexec") or os.path.join(os.path.dirname(sys.executable), "mpiexec")
        commands = [[mpiexec, "-n", str(options.workers), *command]]
    else:
        commands = [[*command, "--rank", str(rank)] for rank in range(options.workers)]
    workers = [subprocess.Popen(each, env=environment) for each in commands]
    sys.exit(max(abs(each.wait()) for each in workers))


if __name__ == "__main__":
    main()
