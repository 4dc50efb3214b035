"""Check a gradient against central differences."""

from collections.abc import Callable

import torch
from torch import Tensor

from shoal.autograd.gradient import grad
from shoal.autograd.tape import Tape, no_record
from shoal.autograd.variable import Variable
from shoal.errors import AutogradError


def gradient_check(
    function: Callable[..., Variable], *inputs: Tensor, step: float = 1e-6, tolerance: float = 1e-6
) -> float:
    """Compare a function's gradient with central differences; returns the largest relative difference.

    (f(x + h) − f(x − h)) / 2h differs from the slope by O(h²) and by rounding, O(ε / h): about 1e-9 in float64.
    Raises an AutogradError if the difference exceeds `tolerance`. The function's output is summed. Cost: two
    evaluations per element of the inputs.

    >>> a = torch.tensor([0.5, 2.0], dtype=torch.float64)
    >>> gradient_check(lambda a, b: a * b + b, a, a + 1) < 1e-8
    True
    """
    for position, value in enumerate(inputs):
        if value.dtype != torch.float64:
            raise AutogradError(
                f"gradient_check needs torch.float64, but input {position} is {value.dtype}",
                "Convert with .double(): in float32 rounding hides the slope.",
            )
    with Tape():
        leaves = [Variable(value.clone()) for value in inputs]
        found = grad(function(*leaves).sum(), leaves)

    worst = 0.0
    for position, value in enumerate(inputs):
        slopes = torch.empty_like(value)
        for element in range(value.numel()):
            heights: list[float] = []
            for shift in (step, -step):
                moved = [Variable(other.clone()) for other in inputs]
                moved[position].value.view(-1)[element] += shift
                with no_record():
                    heights.append(function(*moved).sum().item())
            slopes.view(-1)[element] = (heights[0] - heights[1]) / (2 * step)
        scale = max(1.0, slopes.abs().max().item()) if slopes.numel() else 1.0
        gap = (found[position].value - slopes).abs().max().item() / scale if slopes.numel() else 0.0
        if not gap <= tolerance:
            raise AutogradError(
                f"the gradient of input {position} {tuple(value.shape)} differs by {gap:.1e} from central"
                f" differences (tolerance {tolerance:.1e})",
                "A rule is wrong, or the function has a kink within the step.",
            )
        worst = max(worst, gap)
    return worst
