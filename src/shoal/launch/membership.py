"""Being a member of a group from its beginning to its end, whatever the end."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from shoal.comm.group import Group

AnyGroup = TypeVar("AnyGroup", bound=Group)


@contextmanager
def membership(group: AnyGroup) -> Generator[AnyGroup]:
    """Leave the group at the end; after an error the others are told what it was, not only that we are gone."""
    try:
        yield group
    except BaseException as error:
        group.fail(error)
        raise
    group.close()
