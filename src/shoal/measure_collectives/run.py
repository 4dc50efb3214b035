"""`shoal bench collectives`: starts the workers that measure, and shows the rows as a table, as JSON or as CSV.

`start` runs this file once per worker, by our own launcher, or by mpiexec if MPI takes part.
"""

import csv
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from shoal.comm.group import Group
from shoal.comm.over_torch.checked import join_torch
from shoal.comm.over_torch.group import TorchGroup
from shoal.comm.rendezvous.secret import FILE_VARIABLE, new_secret, without_secret
from shoal.comm.rendezvous.store import connect, listen, serve
from shoal.comm.shared_memory.group import SharedMemoryGroup
from shoal.comm.traced import traced
from shoal.errors import ConfigError, WorkerError, unknown
from shoal.launch import programs
from shoal.measure_collectives.measure import BenchPlan, Contender, Row, contenders, measure, sizes_between

GROUPS = ("shm", "gloo", "gloo+checked", "nccl", "mpi")
"""`gloo` is torch's own backend with nothing of ours around it, the rival; `gloo+checked` is what we ship."""
DEFAULT_GROUPS = {"cpu": ("shm", "gloo"), "cuda": ("nccl", "gloo")}
HOST_ONLY = ("shm", "mpi")
"""Groups that move no memory of a GPU."""
TIMEOUT_S = 60.0
COLUMNS = (
    ("size", "(B)", "size", ">10"),
    ("count", "(elements)", "count", ">10"),
    ("type", "", "type", ">6"),
    ("redop", "", "redop", ">8"),
    ("time", "(us)", "time_us", ">10.1f"),
    ("algbw", "(GB/s)", "algbw", ">8.2f"),
    ("busbw", "(GB/s)", "busbw", ">8.2f"),
    ("#wrong", "", "wrong", ">6"),
    ("mean", "(us)", "mean_us", ">10.1f"),
    ("p95", "(us)", "p95_us", ">10.1f"),
    ("p99", "(us)", "p99_us", ">10.1f"),
    ("calls", "", "calls", ">6"),
    ("of memory", "speed", "of_memory_speed", ">9.2f"),
)
"""Title, unit, field of a row, and format of each column."""


@dataclass(frozen=True)
class BenchSettings:
    """What is measured, as the command line gives it."""

    op: str
    groups: tuple[str, ...]
    algorithms: tuple[str, ...]
    workers: int
    begin: int
    end: int
    factor: int
    seconds: float
    form: str
    """table, json or csv."""
    device: str = "cpu"
    """Whose memory is moved: cpu or cuda."""
    note: str = ""
    """What was measured instead of what was asked for."""

    def plan(self) -> BenchPlan:
        """The same for `measure`; sizes that cannot be measured are refused."""
        return BenchPlan(
            self.op, sizes_between(self.begin, self.end, self.factor), seconds_per_size=self.seconds
        )


def start(settings: BenchSettings) -> None:
    """Check, then measure; rank 0 prints."""
    contenders({}, settings.plan(), settings.algorithms)
    for name in settings.groups:
        if name not in GROUPS:
            raise ConfigError(unknown("group", name, GROUPS))
    settings = with_groups_of(settings, torch.cuda.device_count())
    arguments = [json.dumps(asdict(settings))]
    if "mpi" in settings.groups:
        _start_by_mpi(arguments, settings.workers)
    else:
        programs.by_processes(__file__, arguments, settings.workers)


def with_groups_of(settings: BenchSettings, num_gpus: int) -> BenchSettings:
    """The settings with the groups that this machine can measure.

    NCCL refuses two workers on one GPU. Where there are fewer GPUs than workers gloo takes its place, on the memory of
    the GPUs, and a note says so.
    """
    groups = settings.groups or DEFAULT_GROUPS[settings.device]
    if settings.device == "cpu":
        if "nccl" in groups:
            raise ConfigError("the group nccl moves memory of GPUs only", "Add --device cuda.")
        if settings.workers == 1:
            raise ConfigError("--workers 1: one worker has nothing to exchange", "Use --workers 2 or more.")
        return replace(settings, groups=groups)
    if num_gpus == 0:
        raise ConfigError("--device cuda: torch sees no GPU here", "Use --device cpu.")
    for name in groups:
        if name in HOST_ONLY:
            raise ConfigError(
                f"the group {name} does not move memory of a GPU", "With --device cuda use nccl and gloo."
            )
    if "nccl" not in groups or settings.workers <= num_gpus:
        return replace(settings, groups=groups)
    instead = tuple(dict.fromkeys("gloo" if name == "nccl" else name for name in groups))
    shared = f"{settings.workers} workers share {num_gpus} GPU{'s' if num_gpus > 1 else ''}"
    return replace(
        settings,
        groups=instead,
        note=f"{shared}: NCCL needs one for each worker, so gloo was measured instead",
    )


def _start_by_mpi(arguments: list[str], workers: int) -> None:
    if importlib.util.find_spec("mpi4py") is None:
        raise ConfigError("the group mpi needs mpi4py, which is not installed", "pip install mpich mpi4py")
    store = serve(listen("127.0.0.1", 0), TIMEOUT_S)
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    command = [shutil.which("mpiexec") or beside, "-n", str(workers), sys.executable, __file__, *arguments]
    # mpiexec passes no descriptors on, so the secret goes through a file that only this user can read.
    with tempfile.NamedTemporaryFile() as secret:
        secret.write(new_secret().hex().encode())
        secret.flush()
        environment = {
            **without_secret(os.environ),
            FILE_VARIABLE: secret.name,
            "MASTER_PORT": str(store.port),
            "OMP_NUM_THREADS": "1",
        }
        code = subprocess.run(command, env=environment, check=False).returncode
    if code:
        raise WorkerError(f"mpiexec ended with exit code {code}", "", exit_code=1)


def work(settings: BenchSettings) -> None:
    """One worker of the benchmark."""
    torch.set_num_threads(1)
    rank = int(os.environ.get("PMI_RANK") or os.environ["RANK"])
    note = "; ".join(filter(None, (settings.note, load_note(settings.workers))))
    plan, device = settings.plan(), torch.device("cpu")
    if settings.device == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
        torch.cuda.set_device(device)
    referee = _group("referee", rank, settings.workers)
    groups = {name: _group(name, rank, settings.workers) for name in settings.groups if name != "mpi"}
    entries = contenders(groups, plan, settings.algorithms, device)
    if "mpi" in settings.groups:
        entries.append(_mpi())
    rows = measure(referee, plan, entries, device)
    if rank == 0:
        if settings.form == "json":
            shown = as_json(rows, plan, settings.workers, note, _name_of(device))
        else:
            shown = as_csv(rows).rstrip("\n") if settings.form == "csv" else as_table(rows, note)
        sys.stdout.write(shown + "\n")
    referee.barrier().wait()
    for group in (*groups.values(), referee):
        group.close()


def _group(name: str, rank: int, size: int) -> Group:
    """The group of that name, as shipped: traced and checked. The referee aligns the workers."""
    store = dist.PrefixStore(name, connect("127.0.0.1", int(os.environ["MASTER_PORT"]), rank, TIMEOUT_S))
    if name in ("shm", "referee"):
        return traced(SharedMemoryGroup.join(store, rank, size))
    if name == "gloo+checked":
        return traced(join_torch(store, rank, size))
    return TorchGroup(store, rank, size, backend="nccl" if name == "nccl" else "gloo")


def _name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _mpi() -> Contender:
    from mpi4py import MPI  # pyright: ignore[reportMissingImports]

    all_reduce = MPI.COMM_WORLD.Allreduce
    return Contender("mpi", torch.empty, lambda piece, whole: all_reduce(MPI.IN_PLACE, piece.numpy()))


def load_note(num_workers: int) -> str:
    """A sentence if the machine is busy with other things, else nothing."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    notes: list[str] = []
    if load > 0.3 * cores:
        notes.append(f"the machine was loaded before the run (load {load:.1f} on {cores} cores)")
    if num_workers > cores:
        notes.append(f"{num_workers} workers share {cores} cores")
    return "; ".join(notes)


def as_table(rows: Sequence[Row], note: str = "") -> str:
    """The rows in the columns of nccl-tests, one block per size."""
    titles, units = (
        " ".join(f"{column[at]:{column[3].partition('.')[0]}}" for column in COLUMNS) for at in (0, 1)
    )
    head = [f"# note: {note}"] * bool(note) + [f"# {titles}  contender", f"# {units}"]
    cells = [[format(getattr(row, name), form) for _, _, name, form in COLUMNS] for row in rows]
    return "\n".join(head + [f"  {' '.join(c)}  {row.contender}" for c, row in zip(cells, rows, strict=True)])


def as_json(
    rows: Sequence[Row], plan: BenchPlan, num_workers: int, note: str = "", device: str = "cpu"
) -> str:
    """Everything, for programs."""
    document: dict[str, Any] = {
        "operation": plan.operation,
        "workers": num_workers,
        "cores": os.cpu_count(),
        "device": device,
        "torch": torch.__version__,
        "note": note,
        "rows": [asdict(row) for row in rows],
    }
    return json.dumps(document, indent=1)


def as_csv(rows: Sequence[Row]) -> str:
    """The rows, for spreadsheets."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(asdict(rows[0])) if rows else [])
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    given |= {"groups": tuple(given["groups"]), "algorithms": tuple(given["algorithms"])}
    work(BenchSettings(**given))
