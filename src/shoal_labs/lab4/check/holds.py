"""Micro-batches that are kept waiting until another stage works, so that a program without overlap is found.

Whether a program overlaps its stages then does not depend on the speed of the machine.
"""

import time
from itertools import count
from pathlib import Path
from typing import NamedTuple, final

from shoal_labs.lab4.check.seen import FIRST, LAST

HOLD_S = 6.0
"""How long a layer waits. It waits in vain only if what it waits for depends on itself."""
BUSY_S = 14.0
"""How much longer it waits at most, while threads of this machine wait for a core: the other stage may be one."""
POLL_S = 0.005


class Hold(NamedTuple):
    """A layer keeps one of its micro-batches until the other layer begins one."""

    fault: str
    """What the program does wrong if the layer waits in vain."""
    layer: str
    part: int
    other_layer: str
    other_part: int


@final
class Holds:
    """The holds of one step, in all workers: they see each other's layers begin as files in a scratch folder."""

    def __init__(self, scratch: Path, microbatches: int) -> None:
        self._scratch = scratch
        self._holds = (
            Hold("serial", LAST, 0, FIRST, 1),
            Hold("stage_by_stage", FIRST, microbatches - 1, LAST, 0),
        )

    def begin(self, layer: str) -> None:
        """A layer begins its next micro-batch: wait, if this one is to be kept."""
        if layer not in (FIRST, LAST):
            return
        part = self._next_part(layer)
        for hold in self._holds:
            if (hold.layer, hold.part) == (layer, part):
                self._keep(hold)

    def _next_part(self, layer: str) -> int:
        for part in count():
            try:
                self._begun(layer, part).touch(exist_ok=False)
            except FileExistsError:
                continue
            return part
        raise AssertionError

    def _keep(self, hold: Hold) -> None:
        self._kept(hold).touch()
        start_s, busy_s = time.monotonic(), _waited_for_cores_s()
        while not self._begun(hold.other_layer, hold.other_part).exists():
            waited_s = time.monotonic() - start_s
            if waited_s > HOLD_S + min(BUSY_S, _waited_for_cores_s() - busy_s):
                self._in_vain(hold).touch()
                return
            time.sleep(POLL_S)

    def active(self) -> list[str]:
        """The faults that would be found if what is kept now waits in vain."""
        return [
            hold.fault
            for hold in self._holds
            if self._kept(hold).exists()
            and not self._begun(hold.other_layer, hold.other_part).exists()
            and not self._in_vain(hold).exists()
        ]

    def faults(self) -> list[str]:
        """What was waited for in vain."""
        return [hold.fault for hold in self._holds if self._in_vain(hold).exists()]

    def _begun(self, layer: str, part: int) -> Path:
        return self._scratch / f"begun-{layer}-{part}"

    def _kept(self, hold: Hold) -> Path:
        return self._scratch / f"kept-{hold.fault}"

    def _in_vain(self, hold: Hold) -> Path:
        return self._scratch / f"in-vain-{hold.fault}"


def _waited_for_cores_s() -> float:
    """For how long threads of this machine have waited for a core since it started; 0 where Linux does not tell."""
    try:
        return int(Path("/proc/pressure/cpu").read_text().split("\n")[0].rpartition("=")[2]) / 1e6
    except (OSError, ValueError):
        return 0.0
