"""This process or thread as one worker of a group: joined at the start, left at the end, whatever the end."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from shoal.comm.group import Group
from shoal.comm.join import WorkerAddress, join, own_place
from shoal.comm.liveness.limits import BUSY_S, TRAIN_LIMIT_S, limit_of
from shoal.config.schema import DECIDES_BITS, RunConfig, may_differ
from shoal.config.write import flat, literal
from shoal.events.folder import RunFolder
from shoal.training.setup.device import group_kind, take_device

AnyGroup = TypeVar("AnyGroup", bound=Group)


def facts_of(config: RunConfig, resumed: RunFolder | None = None) -> dict[str, str]:
    """Facts that must be the same on every worker before they start: Python, and settings that affect the result.

    The first fact that differs between two workers is shown from both sides.
    """
    must_agree = DECIDES_BITS if config.train.reduction == "invariant" else ()
    settings = {
        path: literal(value)
        for path, value in flat(config).items()
        if value is not None and (path in must_agree or not may_differ(path, "workers"))
    }
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "--resume": "given" if resumed else "not given",
        **settings,
    }


@contextmanager
def joined_group(
    config: RunConfig,
    resumed: RunFolder | None = None,
    place: WorkerAddress | None = None,
    timeout_s: float | None = None,
) -> Generator[Group]:
    """The group that trains this config, if all workers have the same versions and settings.

    Without a `timeout_s`, the workers are a launcher's, which watches them: the slowest may take its time to start.
    """
    place = place or own_place()
    kind = group_kind(config, take_device(config, place.rank if place else 0))
    facts = facts_of(config, resumed)
    limit_s, timeout_s = training_limit_of(config), limit_of(timeout_s, BUSY_S)
    with closing_group(join(place, kind=kind, facts=facts, limit_s=limit_s, timeout_s=timeout_s)) as group:
        yield group


def training_limit_of(config: RunConfig) -> float:
    """How long a worker of a run may make no progress, beyond the work that it announces."""
    return limit_of(config.launch.timeout, TRAIN_LIMIT_S)


@contextmanager
def closing_group(group: AnyGroup) -> Generator[AnyGroup]:
    """Close the group at the end; after an error, report it to the other members instead."""
    try:
        yield group
    except BaseException as error:
        group.fail(error)
        raise
    group.close()
