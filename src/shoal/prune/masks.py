"""Masks over a model's parameters: hold pruned weights at zero, whatever the optimizer does."""

import hashlib
from collections.abc import Callable, Mapping
from typing import final

import torch
from torch import Tensor

from shoal.config.sections.prune import MovementConfig, WeightPruneConfig
from shoal.errors import CheckpointError
from shoal.prune.weights import Masks, keep_best, keep_pattern, prunable

KEPT, SCORE = "prune.kept.", "prune.score."
"""What the names of saved masks and of saved scores begin with."""


@final
class WeightMasks:
    """Which weights of a model are kept. What is pruned stays pruned.

    An update calls `before_update` and `after_update` around the optimizer's step: pruned weights have no gradient, so
    that clipping and momentum do not see them, and are set to zero again after the step. So they stay zero under any
    optimizer, also one with momentum from before the pruning, or with weight decay.

    Memory: two bytes for each prunable weight; movement keeps a score for each, too.
    """

    def __init__(self, params: Mapping[str, Tensor], config: WeightPruneConfig) -> None:
        self._config = config
        self._params = {name: params[name] for name in prunable(params, config.layers)}
        self.kept: Masks = {
            name: torch.ones_like(param, dtype=torch.bool) for name, param in self._params.items()
        }
        """For every prunable weight, whether it is kept."""
        self._pruned: Masks = {}
        """The opposite of `kept`, once anything may be pruned."""
        self.version = 0
        """Counts the changes of `kept`, for what is derived from it."""
        self._scores = (
            {name: torch.zeros_like(param) for name, param in self._params.items()}
            if isinstance(config, MovementConfig)
            else {}
        )
        if config.pattern:
            keep, of = config.kept_of
            # A pattern that does not fit is refused here, before the training.
            keep_pattern({name: kept.float() for name, kept in self.kept.items()}, self.kept, keep, of)

    @torch.no_grad()
    def prune(self, part: float = 1.0) -> None:
        """Choose masks again, for `part` of the final sparsity, from the weights as they are now, and apply them."""
        config = self._config
        scores = self._scores or {name: param.detach().abs() for name, param in self._params.items()}
        if config.pattern:
            keep, of = config.kept_of
            chosen = keep_pattern(scores, self.kept, of - int(part * (of - keep)), of)
        else:
            chosen = keep_best(scores, self.kept, part * config.sparsity, config.scope)
        for name, kept in chosen.items():
            self.kept[name].copy_(kept)
        self._changed()
        self._to_zero(self._params.get)

    def _changed(self) -> None:
        self._pruned = {name: ~kept for name, kept in self.kept.items()}
        self.version += 1

    @torch.no_grad()
    def before_update(self) -> None:
        """Take pruned weights out of the gradients, and score the movement."""
        for name, score in self._scores.items():
            param = self._params[name]
            if param.grad is not None:
                score.addcmul_(param, param.grad, value=-1.0)
        self._to_zero(lambda name: self._params[name].grad)

    @torch.no_grad()
    def after_update(self) -> None:
        """Set pruned weights to zero."""
        self._to_zero(self._params.get)

    def _to_zero(self, tensor_of: Callable[[str], Tensor | None]) -> None:
        for name, pruned in self._pruned.items():
            tensor = tensor_of(name)
            if tensor is not None:
                # Not by multiplication: 0 · NaN is NaN, and 0 · −1 is −0.
                tensor.masked_fill_(pruned, 0.0)

    @property
    def sparsity(self) -> float:
        """The fraction of the prunable weights that are pruned."""
        total = sum(kept.numel() for kept in self.kept.values())
        return 1.0 - self.num_kept / total

    @property
    def num_kept(self) -> int:
        """The number of prunable weights that are kept."""
        return sum(int(kept.sum()) for kept in self.kept.values())

    @property
    def num_pruned(self) -> int:
        """The number of weights that are pruned."""
        return sum(kept.numel() for kept in self.kept.values()) - self.num_kept

    def sha256(self) -> str:
        """One fingerprint of all masks."""
        return masks_sha256(self.kept)

    def state(self) -> dict[str, tuple[str, Tensor]]:
        """What a checkpoint holds, by name: the parameter, and its mask or score."""
        return {
            **{KEPT + name: (name, kept) for name, kept in self.kept.items()},
            **{SCORE + name: (name, score) for name, score in self._scores.items()},
        }

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Restore masks and scores from a checkpoint."""
        for key, (name, tensor) in self.state().items():
            if key not in saved or saved[key].shape != tensor.shape:
                raise CheckpointError(f"the checkpoint has no mask for '{name}': its run prunes other layers")
            tensor.copy_(saved[key])
        # A run that was stopped before its first pruning has masks that keep everything.
        self._changed()


def masks_sha256(masks: Mapping[str, Tensor]) -> str:
    """One fingerprint of masks by parameter."""
    digest = hashlib.sha256()
    for name, kept in sorted(masks.items()):
        digest.update(f"{name} {tuple(kept.shape)}\n".encode())
        digest.update(kept.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
