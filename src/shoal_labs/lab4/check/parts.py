"""Which run shows which task: a plain one, one with micro-batches or from the start again, with some tasks mended."""

import re
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path
from typing import get_args

from shoal_labs.check.fault import Fault, fault
from shoal_labs.check.student import stamp
from shoal_labs.lab4.check.judge import Task
from shoal_labs.lab4.check.mended import replaceable, undone
from shoal_labs.lab4.check.program import Outcome, run_program

STEPS = 2
"""Of the plain run: the second shows what is left over from the first."""
MICROBATCHES = 4
WORKERS = 3
ERRORS = frozenset({"raises", "raises_there"})


def task_faults(folder: Path, task: Task) -> list[Fault]:
    """What is wrong with one task of the program in a folder."""
    return _found(folder, stamp(folder)).get(task, [fault("not_reached")])


@lru_cache(maxsize=8)
def _found(folder: Path, stamp: object) -> dict[Task, list[Fault]]:
    """The faults of every task that can be tested.

    Where a task keeps another one from being tested, the program runs again with our solution of it. An error in such
    a run counts only if all that was replaced is not done: other functions may rely on how a student solved a task.
    """
    open_tasks, can_be_ours = undone(folder), replaceable(folder)
    found: dict[Task, list[Fault]] = {task: [fault("not_done")] for task in open_tasks}
    ours = open_tasks & can_be_ours
    while len(found) < len(get_args(Task)):
        shown, hangs = _tested(folder, ours)
        doubtful = ours - open_tasks
        for task, faults in shown.items():
            if not (doubtful and any(each.key in ERRORS for each in faults)):
                found.setdefault(task, faults)
        more: set[Task] = {task for task in can_be_ours - ours if found.get(task)}
        if hangs or not more:
            break
        ours |= more
    return found


def _tested(folder: Path, ours: Collection[Task]) -> tuple[dict[Task, list[Fault]], bool]:
    """The faults that a run with our solution of some tasks shows, and another one; and whether it waited in vain."""
    workers, flag = workers_of(folder), microbatch_flag(folder)
    plain, again = run_program(folder, workers, STEPS, [], ours=ours), None
    if not plain.stopped_in:
        flags, count = ([f"{flag}={MICROBATCHES}"], MICROBATCHES) if flag else ([], 1)
        again = run_program(folder, workers, 1, flags, count, ours=ours)
    found = dict(plain.faults)
    if "init_parameters" in found:
        found["init_parameters"] = found["init_parameters"] or initial_faults(plain, again, sets_seed(folder))
    in_parts = microbatch_faults(plain, again, offered=bool(flag))
    if in_parts is not None:
        found["forward_microbatches"] = in_parts
    return found, any(each.key == "hangs" for faults in found.values() for each in faults)


def microbatch_faults(plain: Outcome, again: Outcome | None, offered: bool) -> list[Fault] | None:
    """What is wrong with the run in micro-batches, which must equal one process; None if that cannot be tested."""
    if not offered or (again and again.refused):
        return [fault("not_offered")]
    if again is None:
        return plain.faults.get("forward_microbatches")
    tasks: tuple[Task, ...] = ("stages", "forward", "forward_microbatches", "train_step")
    found = [again.faults[task] for task in tasks if again.faults.get(task) and not plain.faults.get(task)]
    tested = "train_step" in again.faults and not any(map(plain.faults.get, tasks))
    return next(iter(found), [] if tested else None)


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
    return _found_in(folder / "model.py", r"""["'](--\w*micro\w*)["']""")


def sets_seed(folder: Path) -> bool:
    """Whether the program gives init_parameters a seed."""
    return bool(_found_in(folder / "model.py", r"(init_parameters)\([^)]*seed"))


def workers_of(folder: Path) -> int:
    """How many workers the student's containers are; three without that file."""
    return int(_found_in(folder / "docker-compose.yml", r"--n_devices[= ](\d+)") or WORKERS)


def _found_in(path: Path, pattern: str) -> str:
    """The group of a pattern in a file's text; nothing if either is not there."""
    found = re.search(pattern, path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else None
    return found[1] if found else ""
