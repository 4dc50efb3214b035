"""How many threads each worker of one machine gets."""

import os


def threads_per_worker(workers: int) -> int:
    """An equal part of the cores, at least one: more threads than cores slow each other down."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // workers)
