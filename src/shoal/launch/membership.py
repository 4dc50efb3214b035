"""Being a member of a group from its beginning to its end, whatever the end."""

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from shoal.comm.group import Group

AnyGroup = TypeVar("AnyGroup", bound=Group)


@contextmanager
def membership(group: AnyGroup) -> Generator[AnyGroup]:
    """Leave the group at the end; after an error the others are told what it was, not only that we are gone.

    A group that has failed is not closed: gloo, told to let go of a connection, first waits for the collective that is
    under way on it, and so for the very member that is stopped or stuck. It is kept until the process ends.
    """
    try:
        yield group
    except BaseException as error:
        group.fail(error)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
        raise
    group.close()
