"""Handles of collectives that run beside the program, and which of them nobody has waited for."""

from typing import Any

PENDING: list["Handle"] = []
"""Of this process: nobody has waited for these yet."""


class Handle:
    """The handle of a collective that was called with `async_op=True`.

    The collective has ended already: a program that does not wait gets the same numbers in every run, and the missing
    wait is still seen.
    """

    def __init__(self, work: Any) -> None:
        work.wait()
        self._work = work
        self.place, self.functions = "", [""]
        PENDING.append(self)

    def __getattr__(self, name: str) -> Any:
        """Every use waits: `wait()`, a loop over `is_completed()`, a future."""
        if self in PENDING:
            PENDING.remove(self)
        return getattr(self._work, name)


def wait_for(given: Any) -> None:
    """Wait for the handles that a function gave back."""
    for each in given if isinstance(given, list | tuple) else [given]:
        if isinstance(each, Handle):
            each.wait()
