"""The simulated links of a run: create, measure and report them."""

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from shoal.comm.group import Group
from shoal.comm.links.measure import LinkNotice, Measured, measure_links
from shoal.comm.links.shaped import shaped
from shoal.config.sections.launch import LaunchConfig


@contextmanager
def with_links(group: Group, launch: LaunchConfig) -> Generator[tuple[Group, list[Measured]]]:
    """The group with the run's links between its members, and their measured rates; without links, the group itself.

    On exit, all messages in flight are delivered; the underlying group stays open.
    """
    launch.check_workers(group.size)
    if not launch.link or launch.launcher == "netns":  # there the kernel limits the rate
        yield group, []
        return
    linked = shaped(group, launch.link)
    measured = measure_links(linked, launch.link)
    if group.rank == 0:
        for each in measured:
            report_link(each)
    yield linked, measured
    linked.finish()


def report_link(measured: Measured) -> None:
    """Report a measured link; warn if it differs from the requested one."""
    if measured.reached:
        warnings.warn(str(measured), LinkNotice, stacklevel=2)
    else:
        why = (
            "is too busy to measure it" if measured.bits_per_s > measured.link.bits_per_s else "is not faster"
        )
        warnings.warn(f"{measured}: this machine {why}", stacklevel=2)


def link_event(measured: Measured) -> dict[str, Any]:
    """The event of a link."""
    return {
        "event": "link",
        "ends": list(measured.ends),
        "asked_bits_per_s": measured.link.bits_per_s,
        "asked_latency_s": measured.link.latency_s,
        "bits_per_s": round(measured.bits_per_s, 1),
        "latency_s": round(measured.latency_s, 7),
    }
