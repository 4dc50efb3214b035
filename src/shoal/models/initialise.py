"""Initial weights that depend only on the seed and the parameter's name.

Every parameter has its own generator, so the result does not depend on the order of construction, torch's global random
state, other threads or the other parameters: a worker that holds one stage of a model initialises it alone, with the
same weights as in the whole model.
"""

import hashlib
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

EMBEDDING_STD = 0.02  # small enough that the initial scores are nearly equal


def generator_of(seed: int, name: str) -> torch.Generator:
    """The generator of one parameter, from a hash of the seed and the name.

    Torch's CPU generator keeps 32 bits of a seed; two of n names collide with probability n² / 2³³, about one in a
    million for a hundred names.

    >>> torch.equal(torch.rand(3, generator=generator_of(0, "fc1.weight")),
    ...             torch.rand(3, generator=generator_of(0, "fc1.weight")))
    True
    """
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "little"))


@torch.no_grad()
def initialise(model: nn.Module, seed: int, prefix: str = "") -> None:
    """Initialise every parameter and buffer of a model in place, with torch's default distributions.

    Linear and convolution: weight and bias from U(−1/√fan_in, 1/√fan_in). Norms: one and zero. Embeddings:
    N(0, 0.02²), where torch uses N(0, 1). `prefix` is the path of this part in the whole model.

    Numbers are drawn on the CPU, so that a model on a GPU or in float64 starts from the same weights.

    >>> whole = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    >>> part = nn.Linear(3, 2)
    >>> initialise(whole, seed=7)
    >>> initialise(part, seed=7, prefix="1")
    >>> torch.equal(whole[1].weight, part.weight)
    True
    """
    for path, module in model.named_modules(prefix=prefix):
        rule = RULES.get(type(module))
        if rule is not None:
            rule(module, lambda name, path=path: generator_of(seed, f"{path}.{name}" if path else name))
        elif [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
            raise TypeError(f"no initialisation rule for {path} of type {type(module).__name__}")


Rule = Callable[[nn.Module, Callable[[str], torch.Generator]], None]


def _uniform_by_fan_in(module: nn.Module, generator: Callable[[str], torch.Generator]) -> None:
    weight = module.get_parameter("weight")
    bound = 1 / math.sqrt(weight[0].numel())
    for name, param in module.named_parameters(recurse=False):
        param.copy_(torch.empty(param.shape, device="cpu").uniform_(-bound, bound, generator=generator(name)))


def _small_normal(module: nn.Module, generator: Callable[[str], torch.Generator]) -> None:
    for name, param in module.named_parameters(recurse=False):
        # In float64, then rounded: torch chooses among float32 routines by CPU, and they may differ in the last bit.
        drawn: Tensor = torch.empty(param.shape, dtype=torch.float64, device="cpu")
        param.copy_(drawn.normal_(0.0, EMBEDDING_STD, generator=generator(name)).float())


def _one_and_zero(module: nn.Module, generator: Callable[[str], torch.Generator]) -> None:
    del generator  # nothing is drawn
    for name, param in module.named_parameters(recurse=False):
        param.fill_(1.0 if name == "weight" else 0.0)
    if isinstance(module, nn.BatchNorm2d):
        module.reset_running_stats()


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _uniform_by_fan_in,
    nn.Conv2d: _uniform_by_fan_in,
    nn.Embedding: _small_normal,
    nn.BatchNorm2d: _one_and_zero,
    nn.GroupNorm: _one_and_zero,
    nn.LayerNorm: _one_and_zero,
}
