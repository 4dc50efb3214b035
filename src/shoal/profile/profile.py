"""The profile of a program: recorded on every worker, written when all have ended well, and summed up by rank 0."""

import os
import platform
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from shoal import __version__
from shoal.comm.join import WorkerAddress, own_place
from shoal.comm.liveness.limits import limit_of
from shoal.comm.rendezvous.store import connect
from shoal.errors import ConfigError
from shoal.events.file import EventFile, Record
from shoal.events.folder import RunFolder, create
from shoal.files import delete
from shoal.profile.patches import patched
from shoal.profile.recorder import Recorder
from shoal.report.communication import communication
from shoal.training.memory.limits import nearest_limit

RUNS = Path("runs")
FEWEST_STEPS = 2


@contextmanager
def profiled(argv: Sequence[str]) -> Generator[None]:
    """Record the program that runs in the body; when it has ended well on all workers, write the folder of the run.

    The workers tell each other through the launcher's store, beside what the program does there. If the program fails
    on any of them, its error goes on and nothing is written.
    """
    place = own_place() or WorkerAddress(0, 1)
    store = _store(place)
    recorder, begun = Recorder(place.rank, place.size), time.time_ns()
    ended: SystemExit | None = None
    with patched(recorder):
        try:
            yield
        except SystemExit as error:
            if error.code:
                raise
            ended = error
    start = {
        "run_id": "",
        "rank": place.rank,
        "time_ns": begun,
        "workers": place.size,
        "version": __version__,
    }
    start |= {"torch": torch.__version__, "device": _device(), "host": platform.node()}
    start |= {"threads": torch.get_num_threads(), "cores": os.cpu_count()}
    records: list[Record] = [{"event": "start", "step": 0, **start}, *recorder.steps]
    end = {"event": "end", "status": "completed", "step": len(recorder.steps), "time_ns": time.time_ns()}
    end |= {"parameters": recorder.parameters(), "memory": nearest_limit()}
    records.append(end | {"not_scheduled": recorder.delay and recorder.delay.fraction()})
    _write(argv, records, place, store)
    if ended is not None:
        raise ended


def _store(place: WorkerAddress) -> Any:
    """Where the workers meet."""
    if place.size == 1:
        return dist.HashStore()
    if os.environ.get("LOCAL_WORLD_SIZE") != str(place.size):
        raise ConfigError(
            f"a profile needs all {place.size} workers on one machine, because machines have different clocks",
            "Start them with `torchrun --nproc_per_node=N -m shoal.profile` or `shoal launch --profile`.",
        )
    store = connect(place.host, place.port, place.rank, limit_of(None))
    return dist.PrefixStore(f"shoal.profile/{place.attempt}", store)


def _write(argv: Sequence[str], records: Sequence[Record], place: WorkerAddress, store: Any) -> None:
    """Write this worker's events; rank 0 makes the folder, and adds the result when all are written."""
    steps = min(map(int, _from_all(store, place, "steps", str(len(records) - 2))))
    if steps < FEWEST_STEPS:
        raise ConfigError(
            f"{Path(argv[0]).name} made {steps} steps, and a profile needs {FEWEST_STEPS} or more",
            "A step ends with `optimizer.step()` of an optimizer of torch's.",
        )
    name = f"profile-{Path(argv[0]).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    if place.rank == 0:
        store.set("folder", str(create(RUNS, "", name).path))
    folder = RunFolder(Path(store.get("folder").decode()))
    try:
        with EventFile(folder.events(place.rank)) as file:
            for record in records:
                file.append(record)
        _from_all(store, place, "written", "")
        if place.rank == 0:
            facts = {"status": "completed", "profile": " ".join(argv), "workers": place.size, "steps": steps}
            folder.write_result(
                {**facts, "seconds": records[-2]["seconds"], "device": _device(), "run_id": ""}
            )
            _show(folder, steps)
    except BaseException:
        delete(folder.path)
        raise


def _from_all(store: Any, place: WorkerAddress, key: str, mine: str) -> list[str]:
    """What each worker says. One that fails says nothing: then the launcher ends those that wait."""
    keys = [f"{key}{rank}" for rank in range(place.size)]
    store.set(keys[place.rank], mine)
    store.wait(keys, timedelta(seconds=limit_of(None)))
    return [store.get(key).decode() for key in keys]


def _device() -> str:
    return "cuda" if torch.cuda.is_initialized() else "cpu"


def _show(folder: RunFolder, steps: int) -> None:
    """Where the time of each worker went, and what to look at next."""
    ranks = communication(folder.path)
    lines = ["", f"{'':8} {'s/step':>9} {'compute':>8} {'data':>7} {'move':>7} {'wait':>7} {'idle':>7}"]
    for rank in ranks:
        cells = " ".join(f"{f'{100 * part:.0f} %':>7}" for part in rank.with_data.values())
        lines.append(f"{f'rank {rank.rank}':8} {rank.train_s / rank.steps:9.4f}  {cells}")
    lines += [f"{steps:,} steps in {folder.path}", f"Next:  shoal report {folder.path} --open"]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
