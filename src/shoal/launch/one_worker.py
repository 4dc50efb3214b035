"""This process or thread as one worker of a group: joined at the start, left at the end, whatever the end."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from shoal.comm.group import Group
from shoal.comm.join import WorkerAddress, join
from shoal.comm.liveness.limits import BUSY_S, TRAIN_LIMIT_S, limit_of
from shoal.config.schema import RunConfig
from shoal.events.folder import RunFolder
from shoal.launch.facts import facts_of
from shoal.training.setup.device import group_kind, take_device

AnyGroup = TypeVar("AnyGroup", bound=Group)


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
    kind, facts = group_kind(config, take_device(config)), facts_of(config, resumed)
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
