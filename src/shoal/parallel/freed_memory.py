"""Return freed memory to the system."""

import ctypes


def return_freed_memory() -> None:
    """Give the system back what the C library keeps of freed memory, where it can do so (glibc).

    Small and medium tensors are allocated in a heap, whose freed parts stay with the process. Call this after a large
    part of it was freed for good: parameters that were moved to other memory.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
