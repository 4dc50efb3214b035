"""The most bytes that tensors hold at once while something runs, from the allocator's own record."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile


def peak_bytes(work: Callable[[], object]) -> int:
    """Bytes beyond what was there before `work` began.

    >>> import torch
    >>> peak_bytes(lambda: torch.ones(1024) + 1.0) >= 2 * 4096
    True
    """
    with _no_announcements(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    held = most = 0
    for event in record.profiler.kineto_results.events():  # pyright: ignore[reportOptionalMemberAccess]
        if event.name() == "[memory]":
            held += event.nbytes()  # pyright: ignore[reportAttributeAccessIssue]
            most = max(most, held)
    return most


@contextmanager
def _no_announcements() -> Generator[None]:
    """The profiler writes lines of its own to the terminal unless its log level is raised before its first use."""
    name = "KINETO_LOG_LEVEL"
    before = os.environ.get(name)
    os.environ.setdefault(name, "99")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
