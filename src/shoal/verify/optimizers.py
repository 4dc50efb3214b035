"""What is known of an optimizer, and whether the workers' optimizers are one machine's."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from shoal.printable import counted
from shoal.verify.finding import Finding
from shoal.verify.store import Facts, Step

NUMBERS = (int, float)


def groups_of(optimizer: Any) -> list[dict[str, Any]]:
    """The groups of parameters; none where an optimizer of the user's own has no such groups."""
    return getattr(optimizer, "param_groups", [])


def settings_of(optimizer: Any, held: set[int], tensors: Mapping[str, Tensor]) -> Facts:
    """The numbers of an optimizer's groups, and the parameters that it does not hold."""
    groups = [
        {
            key: value
            for key, value in group.items()
            if isinstance(value, NUMBERS) or (isinstance(value, Tensor) and value.numel() == 1)
        }
        for group in groups_of(optimizer)
    ]
    groups = [{key: float(value) for key, value in group.items()} for group in groups]
    trained = [name for name, param in tensors.items() if param.requires_grad]
    missing = [name for name in trained if held and id(tensors[name]) not in held]
    return {"groups": groups, "missing": missing, "trained": trained}


def state_of(optimizer: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of an optimizer's state, by key and parameter."""
    names = {id(param): name for name, param in tensors.items()}
    return {
        f"{names[id(param)]} · {key}": value
        for param, state in getattr(optimizer, "state", {}).items()
        if id(param) in names
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def settings_apart(step: int, mine: Facts, records: Sequence[Step], backwards: int) -> Finding | None:
    """The first difference from one machine's update before its gradients are looked at."""
    lacking = [rank for rank, record in enumerate(records) if _is_elsewhere(record, mine, backwards)]
    if lacking and len(lacking) < len(records):
        cause = f"rank {lacking[0]} makes no update of this model, and other workers do"
        why = (
            "Either its update is left out, or one worker updates for all, as in `dp`: this cannot be compared from outside.",
            "`shoal verify --strategy dp` compares Shoal's.",
        )
        return _finding(step, lacking[0], "optimizer", 1.0, cause, *why, is_comparable=False)
    for rank, record in enumerate(records):
        notes, passes = record.notes("update"), len(record.notes("backward"))
        if not notes:
            return _finding(step, rank, "optimizer", 1.0, f"rank {rank} makes no update in this step")
        if passes != backwards:
            cause = f"rank {rank} makes {passes} backward passes before its update, not {backwards}"
            why = "It skips an update, or makes one more."
            return _finding(step, rank, "optimizer", 1.0, cause, why)
        if strange := [name for name in notes[0]["missing"] if name not in mine["missing"]]:
            cause = f"rank {rank}'s optimizer does not hold this parameter of the model that is trained"
            lacks = counted(len(strange), "parameter")
            why = f"It lacks {lacks}: it was built before the model was wrapped or copied."
            only = None if all(_update(each).get("missing") for each in records) else rank
            return _finding(step, only, strange[0], 1.0, cause, why)
        for ours, theirs in zip(mine["groups"], notes[0]["groups"], strict=False):
            for key in ours.keys() & theirs.keys():
                distance = abs(ours[key] - theirs[key])
                if distance > 1e-9 * abs(ours[key]):
                    cause = f"{key} is {theirs[key]:g} on rank {rank}, and {ours[key]:g} on one machine"
                    groups = [_update(each).get("groups") for each in records]
                    only = None if all(each == groups[0] for each in groups) else rank
                    return _finding(step, only, key, distance / abs(ours[key] or 1.0), cause)
    return None


def _is_elsewhere(record: Step, mine: Facts, backwards: int) -> bool:
    """Whether a worker's backward passes belong to no update, or to the update of another model."""
    missing = {*_update(record).get("missing", [])}
    is_other = bool(mine["trained"]) and missing >= {*mine["trained"]} - {*mine["missing"]} != set()
    return len(record.notes("backward")) > backwards and (is_other or not record.notes("update"))


def _update(record: Step) -> Facts:
    return (record.notes("update") or [{}])[0]


def _finding(
    step: int,
    rank: int | None,
    tensor: str,
    size: float,
    cause: str,
    *why: str,
    is_comparable: bool = True,
) -> Finding:
    return Finding(step, "update", rank, tensor, size, 0.0, cause, why, is_comparable)
