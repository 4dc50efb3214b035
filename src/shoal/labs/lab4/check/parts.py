"""Which run of the program shows which part: a plain one, and one with micro-batches or from the start again."""

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from shoal.labs.check.code_files import code_files
from shoal.labs.check.fault import Fault, fault
from shoal.labs.lab4.check.judge import Part
from shoal.labs.lab4.check.program import Outcome, run_program

STEPS = 2
"""Of the plain run: the second shows what is left over from the first."""
MICROBATCHES = 4
WORKERS = 3


def part_faults(part: Part) -> Callable[[Path], list[Fault]]:
    """What is wrong with one part of the program in a folder."""

    def faults(folder: Path) -> list[Fault]:
        plain, *_ = runs = _runs(folder, _stamp(folder))
        if part == "microbatches":
            return microbatch_faults(*runs, offered=bool(microbatch_flag(folder)))
        found = plain.faults.get(part)
        if found is None:
            return [fault("not_reached")]
        return found or (initial_faults(*runs, sets_seed(folder)) if part == "init" else [])

    return faults


def microbatch_faults(plain: Outcome, again: Outcome | None, offered: bool) -> list[Fault]:
    """What is wrong with the run in micro-batches: it must also equal one process."""
    if not offered or (again and again.refused):
        return [fault("not_offered")]
    if again is None:
        return plain.faults.get("microbatches", [fault("not_reached")])
    found = [again.faults[part] for part in ("model", "microbatches", "step") if part in again.faults]
    return next(filter(None, found), []) if found else [fault("not_reached")]


def initial_faults(plain: Outcome, again: Outcome | None, sets_seed: bool) -> list[Fault]:
    """Two runs must begin with the same parameters if the program draws them from a seed."""
    if again is None or not again.initial or again.initial == plain.initial:
        return []
    unseeded = [worker for worker, place in plain.seeded.items() if not place]
    if plain.driver_seeded and unseeded:
        return [fault("seed_elsewhere", place=plain.driver_seeded, workers=unseeded)]
    return [fault("init_differs")] if sets_seed or plain.driver_seeded else []


def microbatch_flag(folder: Path) -> str:
    """The program's flag for the number of micro-batches; nothing if it has none."""
    found = re.search(
        r"""["'](--\w*micro\w*)["']""", (folder / "model.py").read_text(encoding="utf-8", errors="replace")
    )
    return found[1] if found else ""


def sets_seed(folder: Path) -> bool:
    """Whether the program gives init_parameters a seed."""
    source = (folder / "model.py").read_text(encoding="utf-8", errors="replace")
    return re.search(r"init_parameters\([^)]*seed", source) is not None


def workers_of(folder: Path) -> int:
    """How many workers the student's containers are; three without that file."""
    compose = folder / "docker-compose.yml"
    found = (
        re.search(r"--n_devices[= ](\d+)", compose.read_text(encoding="utf-8", errors="replace"))
        if compose.is_file()
        else None
    )
    return int(found[1]) if found else WORKERS


@lru_cache(maxsize=8)
def _runs(folder: Path, stamp: tuple[tuple[str, int], ...]) -> tuple[Outcome, Outcome | None]:
    """The plain run and, if it came to its end, another one."""
    workers, flag = workers_of(folder), microbatch_flag(folder)
    plain = run_program(folder, workers, STEPS, [])
    if plain.stopped_in:
        return plain, None
    if flag:
        return plain, run_program(folder, workers, 1, [f"{flag}={MICROBATCHES}"], MICROBATCHES)
    return plain, run_program(folder, workers, 1, [])


def _stamp(folder: Path) -> tuple[tuple[str, int], ...]:
    """Changes with the files: a solution that was mended is run again."""
    return tuple((file.name, file.stat().st_mtime_ns) for file in code_files(folder))
