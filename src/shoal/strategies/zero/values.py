"""Chooses where a model on the meta device has its values from; refuses wrong choices before the model is changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from shoal.comm.agree import gather_texts
from shoal.comm.group import Group
from shoal.errors import ConfigError, MismatchError
from shoal.strategies.zero.meta import Draw, Slot, Source, check_drawable, check_no_others, place, slots_of
from shoal.strategies.zero.weights_file import WeightsFile


@dataclass(frozen=True)
class Unfilled:
    """The tensors of a model that have no values yet, by name, and where they are from."""

    tensors: Mapping[str, Tensor]
    source: Source
    seed: int | None
    replaced: Sequence[Tensor]
    """What the model had on the meta device."""

    def check_same_seed(self, group: Group) -> None:
        """Refuse workers that would draw different models. A collective."""
        seeds = gather_texts(group, str(self.seed))
        other = next((rank for rank, each in enumerate(seeds) if each != seeds[0]), None)
        if other is not None:
            raise MismatchError(
                f"the workers would give the model different values: rank 0 has seed={seeds[0]}, and rank {other} "
                f"seed={seeds[other]}",
                "Pass the same seed on all workers: their data differ, and their weights do not.",
            )


def unfilled(
    model: nn.Module, seed: int | None, weights: str | Path | None, device: str | torch.device
) -> Unfilled | None:
    """Replace a model's tensors on the meta device by ones on a device; None if there are none."""
    slots = slots_of(model)
    source = _source(model, slots, seed, weights)
    where = _device(device)
    if source is None:
        return None
    return Unfilled(place(slots, where), source, seed, [slot.meta for slot in slots])


def _source(
    model: nn.Module, slots: list[Slot], seed: int | None, weights: str | Path | None
) -> Source | None:
    given = [name for name, value in (("seed", seed), ("weights", weights)) if value is not None]
    if not slots:
        if given:
            raise ConfigError(
                f"{given[0]}= is for a model on the meta device, and this model has values",
                f'Build it in `with torch.device("meta"):`, or leave {given[0]}= out.',
            )
        return None
    check_no_others(model)
    if len(given) != 1:
        has = "are both a seed and a file" if given else "is neither a seed nor a file"
        raise ConfigError(
            f"'{slots[0].name}' of the model is on the meta device, and there {has} to give it values",
            'Pass one of them: seed=0, or weights="model.safetensors".',
        )
    if weights is not None:
        return WeightsFile(Path(weights), model, slots)
    assert seed is not None
    check_drawable(slots)
    return Draw(model, slots, seed)


def _device(device: str | torch.device) -> torch.device:
    try:
        found = torch.device(device)
        if found.type != "meta":
            torch.empty(0, device=found)  # refused here, before the model has changed
            return found
        reason = "it has no memory"
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        reason = str(error).split("\n")[0]
    raise ConfigError(f"device={str(device)!r} cannot hold the model: {reason}", 'Use "cpu" or "cuda".')
