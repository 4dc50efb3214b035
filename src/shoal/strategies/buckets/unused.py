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
    refuse(
        group,
        f"no gradient reached {_listed(missing)} on rank {group.rank} ({len(missing)} of {num_params} parameters)",
        "Freeze or remove these parameters, or pass find_unused_parameters=True "
        'or unused="zero" (--strategy.unused zero).',
    )


def refuse_dropped(group: Group, dropped: Sequence[str], num_params: int) -> NoReturn:
    """Name the parameters whose gradients the program dropped during backward, here and to the other workers."""
    refuse(
        group,
        f"the gradient of {_listed(dropped)} on rank {group.rank} was dropped during backward, before the workers "
        f"summed it ({len(dropped)} of {num_params} parameters)",
        "A hook that steps an optimizer, or calls zero_grad(), has one worker's gradient only: step after backward().",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:5]) + (" and others" if names[5:] else "")


def refuse(group: Group, message: str, hint: str) -> NoReturn:
    """Raise an error, here and on the other workers."""
    error = WrapperError(message, hint)
    # The other workers wait for a gradient that is never sent: this ends their wait with the reason.
    group.fail(error)
    raise error


def present_somewhere(group: Group, present: Sequence[bool]) -> list[bool]:
    """For each parameter, whether any worker has a gradient."""
    flags = torch.tensor(present, dtype=torch.int32)
    group.all_reduce(flags, Op.MAX).wait()
    return [bool(flag) for flag in flags.tolist()]
