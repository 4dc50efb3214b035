"""The links of a run: laid between its workers, measured, told."""

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from shoal.comm.group import Group
from shoal.comm.links.measure import LinkNotice, Measured, measure_links
from shoal.comm.links.shaped import shaped
from shoal.config.sections.launch import LaunchConfig


@contextmanager
def laid(group: Group, launch: LaunchConfig) -> Generator[tuple[Group, list[Measured]]]:
    """The group with the run's links between its members, and what they really do; without links, the group itself.

    At the end everything that was sent is still delivered; the group beneath stays open.
    """
    launch.check_workers(group.size)
    if not launch.link:
        yield group, []
        return
    linked = shaped(group, launch.link)
    measured = measure_links(linked, launch.link)
    if group.rank == 0:
        for each in measured:
            tell(each)
    yield linked, measured
    linked.finish()


def tell(measured: Measured) -> None:
    """Say what a link does; warn where it is not what was asked for."""
    if measured.reached:
        warnings.warn(str(measured), LinkNotice, stacklevel=2)
    else:
        why = (
            "is too busy to measure it"
            if measured.bits_per_s > measured.link.bits_per_s
            else "carries no more"
        )
        warnings.warn(f"{measured}: this machine {why}", stacklevel=2)


def link_event(measured: Measured) -> dict[str, Any]:
    """What is written down of a link."""
    return {
        "event": "link",
        "ends": list(measured.ends),
        "asked_bits_per_s": measured.link.bits_per_s,
        "asked_latency_s": measured.link.latency_s,
        "bits_per_s": round(measured.bits_per_s, 1),
        "latency_s": round(measured.latency_s, 7),
    }
