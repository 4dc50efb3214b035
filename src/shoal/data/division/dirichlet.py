"""Random proportions from a given generator; torch's distributions use its global state."""

import math

import torch
from torch import Tensor


def dirichlet(alpha: float, rows: int, width: int, generator: torch.Generator) -> Tensor:
    """Rows of `width` proportions that add up to 1, each row from Dirichlet(α, …, α), in float64.

    Independent Gamma(α) draws divided by their sum. For small α they underflow, so their logarithms are drawn:
    log Gamma(α) = log Gamma(α + 1) + log(U) / α.

    >>> dirichlet(1e-4, 3, 4, torch.Generator()).max(dim=1).values
    tensor([1., 1., 1.], dtype=torch.float64)
    """
    uniform = 1 - torch.rand(rows, width, dtype=torch.float64, generator=generator)  # never zero
    logarithms = gamma(alpha + 1, (rows, width), generator).log() + uniform.log() / alpha
    return logarithms.softmax(dim=1)


def gamma(shape: float, size: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draws from Gamma(shape) for a shape of at least 1, in float64, by the method of Marsaglia and Tsang (2000).

    With d = shape − 1/3, d·(1 + x/√(9d))³ of a normal x has almost this distribution; rejection sampling makes it exact
    (at most one draw in twenty is repeated).
    """
    d = shape - 1 / 3
    drawn = torch.empty(math.prod(size), dtype=torch.float64)
    waiting = torch.arange(len(drawn))
    while len(waiting):
        normal = torch.randn(len(waiting), dtype=torch.float64, generator=generator)
        uniform = 1 - torch.rand(len(waiting), dtype=torch.float64, generator=generator)
        cube = (1 + normal / math.sqrt(9 * d)) ** 3
        # Where the cube is not positive its logarithm is NaN, and the comparison is false.
        accepted = uniform.log() < normal**2 / 2 + d * (1 - cube + cube.log())
        drawn[waiting[accepted]] = d * cube[accepted]
        waiting = waiting[~accepted]
    return drawn.view(size)
