"""A group that is closed at the end, or told of the error that ends its use."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from shoal.comm.group import Group

AnyGroup = TypeVar("AnyGroup", bound=Group)


@contextmanager
def closing_group(group: AnyGroup) -> Generator[AnyGroup]:
    """Close the group at the end; after an error, report it to the other members instead."""
    try:
        yield group
    except BaseException as error:
        group.fail(error)
        raise
    group.close()
