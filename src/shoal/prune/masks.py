"""Which single weights are kept, and masks that hold the others at zero, whatever the optimizer does.

Every choice is a pure function of scores and of what was kept before. What is pruned stays pruned, also where less is
asked for: a resumed run that trains longer follows another curve. Equal scores are pruned in the order of the elements,
so workers with the same weights choose the same, on any device.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import final

import torch
from torch import Tensor

from shoal.config.sections.prune import MovementConfig, WeightPruneConfig
from shoal.errors import CheckpointError, ConfigError

Masks = dict[str, Tensor]
"""By the name of a parameter, True where a weight is kept."""


def prunable(params: Mapping[str, Tensor], layers: str = "*") -> list[str]:
    """The parameters to prune: weights with at least two dimensions of the layers that match a pattern.

    Biases and norms are few, and removing them saves nothing.

    >>> prunable({"fc1.weight": torch.zeros(2, 2), "fc1.bias": torch.zeros(2), "norm.weight": torch.zeros(2)})
    ['fc1.weight']
    """
    weights = [name for name, param in params.items() if param.dim() >= 2]
    found = [name for name in weights if fnmatchcase(layer_of(name), layers) or fnmatchcase(name, layers)]
    if not found:
        known = ", ".join(layer_of(name) for name in weights) or "none"
        raise ConfigError(
            f"no layer with prunable weights matches '{layers}'", f"Layers with weights: {known}."
        )
    return found


def layer_of(name: str) -> str:
    """The layer of a parameter.

    >>> layer_of("stage1.0.conv1.weight")
    'stage1.0.conv1'
    """
    return name.rpartition(".")[0] or name


def keep_best(scores: Mapping[str, Tensor], kept: Mapping[str, Tensor], sparsity: float, scope: str) -> Masks:
    """Keep the weights with the largest scores: `sparsity` of all (`global`) or of each tensor (`layer`) are pruned.

    >>> scores, kept = {"w": torch.tensor([3.0, 1.0, 2.0, 4.0])}, {"w": torch.ones(4, dtype=torch.bool)}
    >>> keep_best(scores, kept, 0.5, "layer")["w"]
    tensor([ True, False, False,  True])
    """
    ranked = {name: _ranked(score, kept[name]) for name, score in scores.items()}
    if scope == "layer":
        parts = [_largest(score.view(-1), sparsity) for score in ranked.values()]
    else:
        flat = _largest(torch.cat([score.view(-1) for score in ranked.values()]), sparsity)
        parts = flat.split([score.numel() for score in ranked.values()])
    # Where less is asked for than is pruned already, some of what is pruned would come back.
    return {name: part.view_as(kept[name]) & kept[name] for name, part in zip(ranked, parts, strict=True)}


def keep_pattern(scores: Mapping[str, Tensor], kept: Mapping[str, Tensor], keep: int, of: int) -> Masks:
    """Keep the `keep` largest scores of every `of` consecutive inputs of an output.

    >>> masks = keep_pattern({"w": torch.tensor([[3.0, 1.0, 2.0, 4.0]])}, {"w": torch.ones(1, 4).bool()}, 1, 2)
    >>> masks["w"]
    tensor([[ True, False, False,  True]])
    """
    masks: Masks = {}
    for name, score in scores.items():
        if score[0].numel() % of:
            fitting = [layer_of(each) for each, score in scores.items() if score[0].numel() % of == 0]
            raise ConfigError(
                f"a pattern of {of} weights does not divide the {score[0].numel()} inputs of {layer_of(name)}",
                f"Name layers that it fits: {', '.join(fitting)}." if fitting else "It fits no layer.",
            )
        groups = _ranked(score, kept[name]).view(-1, of)
        order = groups.argsort(dim=1, stable=True)  # the first ones are pruned
        mask = torch.ones_like(groups, dtype=torch.bool)
        masks[name] = mask.scatter_(1, order[:, : of - keep], False).view(score.shape) & kept[name]
    return masks


def _ranked(score: Tensor, kept: Tensor) -> Tensor:
    """The scores in the order of memory; what is pruned already comes first."""
    return score.masked_fill(~kept, -torch.inf).contiguous()


def _largest(scores: Tensor, sparsity: float) -> Tensor:
    """True for all but the `sparsity` smallest scores; of equal ones at the limit, the first are pruned."""
    num_pruned = round(sparsity * scores.numel())
    if num_pruned == 0:
        return torch.ones_like(scores, dtype=torch.bool)
    limit = scores.kthvalue(num_pruned).values
    mask = scores > limit
    equal = (scores == limit).nonzero().view(-1)
    num_equal_kept = scores.numel() - num_pruned - int(mask.sum())
    mask[equal[len(equal) - num_equal_kept :]] = True
    return mask


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


@dataclass(frozen=True)
class CubicSchedule:
    """The cubic curve of Zhu and Gupta (2017): fast at first, while there is much to remove, slow in the end.

    With u the fraction of the way from step `begin` to step `end`, the part 1 − (1 − u)³ of the final sparsity is
    reached. Masks change at `begin`, every `every` steps, and at `end`; then they are fixed.

    >>> schedule = CubicSchedule(begin=0, end=20, every=10)
    >>> [(step, schedule.part(step)) for step in range(100) if schedule.is_due(step)]
    [(0, 0.0), (10, 0.875), (20, 1.0)]
    >>> CubicSchedule.of(0.0, 0.0, every=10, total_steps=100).part(0)
    1.0
    """

    begin: int
    end: int
    every: int

    @classmethod
    def of(cls, begin: float, end: float, every: int, total_steps: int) -> "CubicSchedule":
        """From fractions of the training; masks are fixed before the last step."""
        return cls(int(begin * total_steps), min(int(end * total_steps), total_steps - 1), every)

    def is_due(self, step: int) -> bool:
        """Whether the masks change before this step."""
        return step == self.end or (self.begin <= step < self.end and (step - self.begin) % self.every == 0)

    def part(self, step: int) -> float:
        """The part of the final sparsity that holds from this step on."""
        if step >= self.end:
            return 1.0
        if step <= self.begin:
            return 0.0
        return 1.0 - (1.0 - (step - self.begin) / (self.end - self.begin)) ** 3
