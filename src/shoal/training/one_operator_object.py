"""One Python object for each of torch's operators, although several threads ask for it first at the same moment.

Within a dispatch mode torch looks an operator's object up in `torch.ops`, which makes it at the first request, and
keeps a pointer to it without a reference. Two threads can each make one: `torch.ops` keeps the second, the first is
freed, and the pointer to it crashes the process (seen with torch 2.13).
"""

import threading
from functools import cache
from typing import Any

from torch import _ops

_ONE_AT_A_TIME = threading.RLock()  # an object is made while its namespace is


@cache
def make_operator_objects_once() -> None:
    """From now on a thread waits while another makes the object of an operator, and takes that one."""
    for kind in (_ops._OpNamespace, _ops.OpOverloadPacket):  # pyright: ignore[reportPrivateUsage]
        _guard(kind)


def _guard(kind: Any) -> None:
    make = kind.__getattr__

    def take_or_make(self: Any, name: str) -> Any:
        with _ONE_AT_A_TIME:
            made = vars(self)
            return made[name] if name in made else make(self, name)

    kind.__getattr__ = take_or_make
