"""One direction of a link as a timetable: when a message has left, and when it has arrived.

Bytes go one after the other, at the link's rate; the last one then needs the latency to get there::

    gone    = max(now, gone of the message before) + bytes / rate
    arrived = gone + latency
"""

from typing import NamedTuple, final

from shoal.config.conditions import Link


class Times(NamedTuple):
    """When a message's last byte has left its sender, and when it has reached its receiver."""

    gone_ns: int
    arrived_ns: int


@final
class Wire:
    """What one worker sends to another. Without a link, everything arrives as it is sent.

    >>> wire = Wire(Link((0, 1), bits_per_s=8e6, latency_s=0.005))
    >>> wire.admit(now_ns=0, num_bytes=1000), wire.admit(now_ns=0, num_bytes=1000)
    (Times(gone_ns=1000000, arrived_ns=6000000), Times(gone_ns=2000000, arrived_ns=7000000))
    """

    def __init__(self, link: Link | None) -> None:
        self._ns_per_byte = 8e9 / link.bits_per_s if link else 0.0
        self._latency_ns = round(1e9 * link.latency_s) if link else 0
        self._free_ns = 0.0

    def admit(self, now_ns: int, num_bytes: int) -> Times:
        """Put a message on the wire, behind those that are still on it."""
        # The wire's own time is kept as a float of nanoseconds: rounding would add up over small messages.
        self._free_ns = max(float(now_ns), self._free_ns) + num_bytes * self._ns_per_byte
        gone_ns = round(self._free_ns)
        return Times(gone_ns, gone_ns + self._latency_ns)
