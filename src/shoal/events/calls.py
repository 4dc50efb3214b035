"""One call of a group of workers, as it is traced, written down and read again."""

from typing import NamedTuple


class Call(NamedTuple):
    """Made from `start_ns` to `issued_ns`, waited for from `wait_ns` to `end_ns`, all on the monotonic clock.

    Between the two the caller did something else.
    """

    operation: str
    num_bytes: int
    group: str
    sequence: int
    start_ns: int
    issued_ns: int
    wait_ns: int
    end_ns: int

    @property
    def blocked_ns(self) -> int:
        """How long the caller could do nothing else."""
        return self.issued_ns - self.start_ns + self.end_ns - self.wait_ns

    def waiting_ns(self, last_ns: int) -> int:
        """How much of that lies before the moment at which the last member came.

        >>> Call("all_reduce", 8, "world", 1, start_ns=0, issued_ns=10, wait_ns=50, end_ns=100).waiting_ns(80)
        40
        """
        before_issued = min(max(last_ns - self.start_ns, 0), self.issued_ns - self.start_ns)
        before_end = min(max(last_ns - self.wait_ns, 0), self.end_ns - self.wait_ns)
        return before_issued + before_end
