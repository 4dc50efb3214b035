"""Where a worker stands: what its main thread does, and its last calls of torch's groups."""

import json
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from shoal.launch.failure import users_frames
from shoal.launch.hangs.calls import MEETING, Call

MOST_FRAMES = 30
"""Frames of a stack that are reported, the innermost."""
MOST_CALLS = 64
"""Calls that torch's flight recorder keeps."""
RECORDER_VARIABLE = "TORCH_FR_BUFFER_SIZE"
"""How many calls the recorder keeps."""
State = Literal["waits", "runs", "finished", "failed", "ended", "silent"]


class Place(NamedTuple):
    """A frame of a Python stack."""

    path: str
    line: int
    function: str
    source: str
    is_users: bool
    """Whether it is in the user's own code."""


@dataclass
class Standing:
    """One worker, as the launcher knows it."""

    rank: int
    state: State
    """It waits in `call`, runs, has finished its program, failed, ended without a report, or does not answer."""
    call: Call | None = None
    """The call in which it waits or waited."""
    waited_s: float = 0.0
    calls: dict[tuple[str, int], Call] = field(default_factory=dict[tuple[str, int], Call])
    """Its last calls, by group and number."""
    stack: Sequence[Place] = ()
    """The outermost frame first."""
    remark: str = ""
    """How it failed or ended."""

    def last(self, key: str) -> int:
        """The number of its last call in a group; 0 if it has made none."""
        own = [] if self.call is None or self.call.is_message or self.call.key != key else [self.call.number]
        return max([number for group, number in self.calls if group == key] + own, default=0)

    def made(self, key: str, number: int) -> Call | None:
        """Its collective of this number, also if it was stopped before that."""
        at = self.call
        is_there = at is not None and not at.is_message and (at.key, at.number) == (key, number)
        return at if is_there else self.calls.get((key, number))

    def place(self) -> Place | None:
        """The innermost line of the user's code, else of any."""
        users = [each for each in self.stack if each.is_users]
        return (users or list(self.stack) or [None])[-1]


def stack_of_thread(ident: int) -> list[Place]:
    """The stack of a thread of this process, the outermost frame first; empty if the thread has ended."""
    frame = sys._current_frames().get(ident)  # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return []
    frames = traceback.StackSummary.extract(traceback.walk_stack(frame))
    frames.reverse()
    return places(frames)


def places(frames: traceback.StackSummary) -> list[Place]:
    """The frames of a stack or a traceback, without those that start a program."""
    users = {id(frame) for frame in users_frames(frames)}
    found = [
        Place(frame.filename, frame.lineno or 0, frame.name, frame.line or "", id(frame) in users)
        for frame in frames
    ]
    first = next((index for index, place in enumerate(found) if place.is_users), 0)
    return found[first:][-MOST_FRAMES:]


def meeting(stack: Sequence[Place]) -> Call | None:
    """The call in which a thread waits at torch's store for all other workers, if it does."""
    for place in stack:
        if place.path.endswith("distributed_c10d.py") and place.function in _MEETINGS:
            return Call(MEETING, "world", 1, place.function)
    return None


_MEETINGS = ("init_process_group", "new_group", "monitored_barrier")


class Recorded(NamedTuple):
    """What torch's flight recorder knows."""

    calls: Sequence[Call] = ()
    """The last collectives."""
    waits: Call | None = None
    """The first that is not over."""
    age_s: float = 0.0
    """Its age."""
    timeout_s: float = 0.0
    """Torch's own limit for it, or for a message that is not over."""


def recorded_calls(keys: Mapping[str, tuple[str, str]]) -> Recorded:
    """Read torch's flight recorder.

    It also sees what C++ issues: DDP's all-reduces, functional collectives. `keys` has the key and the name of groups.
    """
    try:
        from torch._C._distributed_c10d import (  # pyright: ignore[reportMissingImports]
            _dump_fr_trace_json,  # pyright: ignore[reportUnknownVariableType, reportAttributeAccessIssue]
        )

        entries: list[dict[str, Any]] = json.loads(_dump_fr_trace_json(True, False)).get("entries", [])
    except Exception:  # a version or a backend without a recorder
        return Recorded()
    calls, waits, age_s, timeout_s = list[Call](), None, 0.0, 0.0
    for entry in entries[-MOST_CALLS:]:
        name, *_ = entry["process_group"]
        if not entry["retired"]:
            timeout_s = max(timeout_s, entry.get("timeout_ms", 0) / 1000)
        if entry["is_p2p"] or name not in keys:  # a message, or a group of ours
            continue
        key, group = keys[name]
        shape, num_bytes = _shape(entry)
        operation = entry["profiling_name"].rpartition(":")[2]
        calls.append(Call(key, group, entry["collective_seq_id"], operation, shape, num_bytes))
        if not entry["retired"] and waits is None:
            waits, age_s = calls[-1], (time.time_ns() - entry["time_created_ns"]) / 1e9
    return Recorded(calls, waits, age_s, timeout_s)


_DTYPES = {
    "Float": ("float32", 4), "Double": ("float64", 8), "BFloat16": ("bfloat16", 2), "Half": ("float16", 2),
    "Int": ("int32", 4), "Long": ("int64", 8), "Short": ("int16", 2), "Char": ("int8", 1), "Byte": ("uint8", 1),
    "Bool": ("bool", 1),
}  # fmt: skip
"""The recorder's names of dtypes, ours, and their bytes."""


def _shape(entry: Mapping[str, Any]) -> tuple[str, int]:
    if len(entry["input_sizes"]) != 1:
        return "", -1
    numel = 1
    for length in entry["input_sizes"][0]:
        numel *= length
    dtype, item = _DTYPES.get(entry["input_dtypes"][0], (entry["input_dtypes"][0].lower(), -1))
    return f"{dtype}[{numel}]", numel * item if item > 0 else -1


def main_thread() -> int:
    """The thread that runs the program."""
    return threading.main_thread().ident or 0
