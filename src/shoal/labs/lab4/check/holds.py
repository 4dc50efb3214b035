"""Micro-batches that are kept waiting until another stage works, so that a program without overlap is found.

Whether a program overlaps its stages then does not depend on the speed of the machine.
"""

import time
from itertools import count
from pathlib import Path
from typing import NamedTuple, final

from shoal.labs.lab4.check.seen import FIRST, LAST

HOLD_S = 6.0
"""How long a layer waits. It waits in vain only if what it waits for depends on itself."""
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
        deadline_s = time.monotonic() + HOLD_S
        while not self._begun(hold.other_layer, hold.other_part).exists():
            if time.monotonic() > deadline_s:
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
