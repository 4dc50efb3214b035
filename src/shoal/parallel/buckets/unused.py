"""Parameters that a backward pass gives no gradient: an error that names them, or zeros."""

from collections.abc import Sequence
from typing import Literal, NoReturn

import torch

from shoal.comm.group import Group
from shoal.comm.reduction import Op
from shoal.errors import WrapperError

Unused = Literal["refuse", "zero"]


def refuse_unused(group: Group, missing: Sequence[str], num_params: int) -> NoReturn:
    """Name the parameters without a gradient, here and to the other workers."""
    names = ", ".join(f"'{name}'" for name in missing[:5]) + (" and others" if missing[5:] else "")
    error = WrapperError(
        f"no gradient reached {names} on rank {group.rank} ({len(missing)} of {num_params} parameters)",
        "Freeze or remove these parameters, or pass find_unused_parameters=True "
        'or unused="zero" (--strategy.unused zero).',
    )
    # The other workers wait for a gradient that is never sent: this ends their wait with the reason.
    group.fail(error)
    raise error


def present_somewhere(group: Group, present: Sequence[bool]) -> list[bool]:
    """For each parameter, whether any worker has a gradient."""
    flags = torch.tensor(present, dtype=torch.int32)
    group.all_reduce(flags, Op.MAX).wait()
    return [bool(flag) for flag in flags.tolist()]
