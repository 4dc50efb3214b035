"""Return freed memory to the system."""

import ctypes

_MMAP_THRESHOLD, _LARGE = -3, 128 * 1024
"""glibc's name of a setting, and the value with which it begins: it grows to 32 MiB when large memory is freed."""


def return_large_memory_at_once() -> None:
    """Have the C library give memory of 128 KiB and more back to the system when it is freed, from now on (glibc).

    Otherwise it keeps such memory for later use, in a heap with gaps. Costs page faults when memory is used again.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _LARGE)


def return_freed_memory() -> None:
    """Give the system back what the C library keeps of freed memory, where it can do so (glibc).

    Small and medium tensors are allocated in a heap, whose freed parts stay with the process. Call this after a large
    part of it was freed for good: parameters that were moved to other memory.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
