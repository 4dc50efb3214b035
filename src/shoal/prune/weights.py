"""Choose single weights: which elements of some tensors are kept, by their scores.

Every choice is a pure function of scores and of what was kept before. What is pruned stays pruned, also where less is
asked for: a resumed run that trains longer follows another curve. Equal scores are pruned in the order of the elements,
so workers with the same weights choose the same, on any device.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from shoal.errors import ConfigError

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
