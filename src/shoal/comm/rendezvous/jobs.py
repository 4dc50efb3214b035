"""The place of a worker in a job: variables of Slurm, Open MPI, MPICH and Kubernetes, in the names of torchrun.

    srun --ntasks 4 shoal train …        mpirun -n 4 python train.py        a Kubernetes Job with an index

`MASTER_ADDR` and `MASTER_PORT`, if they are set, count more than what is found here. A job of one process is none: its
program may start workers itself.
"""

import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from zlib import crc32

from shoal.errors import JoinError
from shoal.printable import shortened

Environment = Mapping[str, str]
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 29500
FIRST_PORT, PORTS = 20000, 12000
"""Jobs with an identity use a port in this range, below those that the system hands out."""


@dataclass(frozen=True)
class Job:
    """A kind of job, and the variables that it sets for each process."""

    name: str
    rank: str
    size: str
    local_rank: str = ""
    local_size: Callable[[Environment], str] = lambda environment: ""
    """The number of processes on this machine, as digits; empty if it is not known."""
    host: Callable[[Environment], str] = lambda environment: ""
    """The machine of rank 0; empty if the job does not tell."""
    identity: tuple[str, ...] = ()
    """Variables whose values no other job on the same machines has."""


def _first_host(environment: Environment) -> str:
    """The first machine of Slurm's list, which has task 0.

    >>> _first_host({"SLURM_STEP_NODELIST": "gpu[08-11,14],login1"}), _first_host({"SLURM_STEP_NODELIST": "a,b"})
    ('gpu08', 'a')
    """
    nodes = re.sub(r"\[(\w+)[^\]]*\]", r"\1", environment.get("SLURM_STEP_NODELIST", ""))
    return nodes.partition(",")[0]


def _tasks_here(environment: Environment) -> str:
    """The tasks of this node, from Slurm's list of tasks by node.

    >>> _tasks_here({"SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2"})
    '3'
    """
    counts = [
        count
        for count, times in re.findall(
            r"(\d+)(?:\(x(\d+)\))?", environment.get("SLURM_STEP_TASKS_PER_NODE", "")
        )
        for _ in range(int(times or 1))
    ]
    node = environment.get("SLURM_NODEID", "")
    return counts[int(node)] if node.isdecimal() and int(node) < len(counts) else ""


JOBS = (
    Job(
        "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", _tasks_here, _first_host,
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
    ),
    Job(
        "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
        lambda environment: environment.get("OMPI_COMM_WORLD_LOCAL_SIZE", ""), identity=("PMIX_NAMESPACE",),
    ),
    Job(
        "MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
        lambda environment: environment.get("MPI_LOCALNRANKS", ""),
    ),
    Job("Kubernetes", "JOB_COMPLETION_INDEX", "WORLD_SIZE"),
)  # fmt: skip
"""In the order in which they are looked for: Slurm also sets variables of MPI."""


class PlaceNotice(UserWarning):
    """Where this process found its place."""


def take_job() -> None:
    """Set the variables of torchrun for the job that this process belongs to; rank 0 says what it found.

    Torch and programs read these names, and so do processes that this one starts.
    """
    job = job_of(os.environ)
    if job is None:
        return
    name, variables = job
    os.environ.update(variables)
    if variables["RANK"] == "0":
        local_size = variables.get("LOCAL_WORLD_SIZE")
        here = f", {local_size} on this machine" if local_size else ""
        master = f"{variables['MASTER_ADDR']}:{variables['MASTER_PORT']}"
        text = f"{name}: this is rank 0 of {variables['WORLD_SIZE']} workers{here}; they meet at {master}"
        warnings.warn(text, PlaceNotice, stacklevel=5)  # the program's line, through shoal.join


def job_of(environment: Environment) -> tuple[str, dict[str, str]] | None:
    """The name of the job that this process belongs to, and torchrun's variables for it; None if there is none.

    >>> name, variables = job_of({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"})
    >>> name, variables["RANK"], variables["MASTER_ADDR"]
    ('MPI', '1', '127.0.0.1')
    """
    if "RANK" in environment:
        return None
    for job in JOBS:
        rank, size = environment.get(job.rank), environment.get(job.size)
        if rank is not None and size is not None:
            return None if size == "1" else (job.name, _variables(job, rank, size, environment))
    return None


def _variables(job: Job, rank: str, size: str, environment: Environment) -> dict[str, str]:
    local_size = job.local_size(environment)
    here = LOOPBACK if local_size == size else ""
    host = environment.get("MASTER_ADDR") or here or job.host(environment)
    if not host:
        raise JoinError(
            f"{job.name} started {shortened(size)} workers, and its variables do not tell the machine of rank 0",
            "Set MASTER_ADDR to the machine of rank 0 for all of them, and MASTER_PORT to a free port.",
        )
    variables = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": host}
    variables["MASTER_PORT"] = environment.get("MASTER_PORT") or str(_port(job, environment))
    if local_rank := environment.get(job.local_rank):
        variables["LOCAL_RANK"] = local_rank
    if local_size:
        variables["LOCAL_WORLD_SIZE"] = local_size
    return variables


def _port(job: Job, environment: Environment) -> int:
    """The same port on every machine of a job, and most likely another one for another job."""
    identity = ".".join(environment.get(name, "") for name in job.identity)
    return FIRST_PORT + crc32(identity.encode()) % PORTS if identity.strip(".") else DEFAULT_PORT
