"""Memory fences: a worker that sees a flag must also see what was written before the flag.

x86-64 keeps the order of stores and of loads by itself. ARM does not: there every flag is written after a fence and
read before one. Python has no fence of its own, so this module uses a library's: C11's `atomic_thread_fence` from
libatomic, or, where that is not installed, two atomic additions of libstdc++ (torch itself needs that library). A
release is ordered before a later acquire, so everything before the first addition happens before everything after the
second.
"""

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import lru_cache

SEQUENTIALLY_CONSISTENT = 5
"""C11's memory_order_seq_cst."""


def _none() -> None:
    """Nothing: the processor keeps the order."""


def _from_libatomic() -> Callable[[], None]:
    # PyDLL keeps the interpreter lock: releasing it costs more than the fence.
    fence = ctypes.PyDLL("libatomic.so.1").atomic_thread_fence
    fence.argtypes, fence.restype = [ctypes.c_int], None

    def call() -> None:
        fence(SEQUENTIALLY_CONSISTENT)

    call()
    return call


def _from_libstdcxx() -> Callable[[], None]:
    add = ctypes.PyDLL("libstdc++.so.6")._ZN9__gnu_cxx18__exchange_and_addEPVii
    add.argtypes = [ctypes.c_void_p, ctypes.c_int]
    word = ctypes.c_int(0)
    address = ctypes.addressof(word)

    def call(keep: ctypes.c_int = word) -> None:
        del keep
        add(address, 1)
        add(address, -1)

    call()
    return call


@lru_cache(maxsize=1)
def find_fence() -> Callable[[], None] | None:
    """The fence of this machine, or None where Python cannot order shared memory."""
    if sys.platform != "linux":
        return None
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return _none
    if machine in ("aarch64", "arm64"):
        for source in (_from_libatomic, _from_libstdcxx):
            try:
                return source()
            except (OSError, AttributeError):
                continue
    return None
