"""Our optimizers against torch's: 62 tensors, 11 M parameters, the shapes of ResNet-18.

    python bench/optim.py [--rounds 31] [--threads 1] [--device cuda] [--json]

Promised: on a CPU the readable step takes at most the time of torch's `foreach` step; the fast step takes at most 1.05
of the time of torch's `fused` step. All rivals update the same parameters, in turn. At the end it counts how many
elements get other bits when the same flat parameters are updated in slices of three.
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from common import Target, interleave, options, report
from shoal.optim import SGD, Adam

Maker = Callable[..., torch.optim.Optimizer]

RULES: dict[str, tuple[Maker, Maker, dict[str, Any]]] = {
    "SGD": (SGD, torch.optim.SGD, {"lr": 1e-4}),
    "SGD with momentum": (SGD, torch.optim.SGD, {"lr": 1e-4, "momentum": 0.9}),
    "Adam": (Adam, torch.optim.Adam, {"lr": 1e-4}),
}
FAST = Target("fast", "fused", at_most=1.05)
# The readable step is made for a CPU's caches; a GPU gets it row by row, which is right and not quick.
TARGETS = {"cpu": [Target("readable", "foreach", at_most=1.0), FAST], "cuda": [FAST]}


def resnet18_shapes() -> list[tuple[int, ...]]:
    """The parameters of ResNet-18 with the stem for small pictures, ten labels: 62 tensors, 11,173,962 elements."""
    shapes: list[tuple[int, ...]] = [(64, 3, 3, 3), (64,), (64,)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        for block_inputs in (inputs, outputs):
            shapes += [(outputs, block_inputs, 3, 3), (outputs,), (outputs,)]
            shapes += [(outputs, outputs, 3, 3), (outputs,), (outputs,)]
            if block_inputs != outputs:
                shapes += [(outputs, block_inputs, 1, 1), (outputs,), (outputs,)]
        inputs = outputs
    return [*shapes, (10, 512), (10,)]


def make_params(device: str) -> list[Tensor]:
    """Parameters with gradients, allocated one by one as a module does."""
    generator = torch.Generator().manual_seed(0)
    params = [
        torch.randn(shape, generator=generator).to(device).requires_grad_() for shape in resnet18_shapes()
    ]
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator).to(device)
    return params


def rivals(rule: str, params: Sequence[Tensor], device: str) -> dict[str, Callable[[], None]]:
    """One step of each: torch's two ways, and ours."""
    ours, theirs, given = RULES[rule]
    optimizers = {
        "foreach": theirs(params, **given, foreach=True),
        "readable": ours(params, **given),
        "fused": theirs(params, **given, fused=True),
        "fast": ours(params, **given, fast=True),
    }

    def stepping(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
        def work() -> None:
            optimizer.step()
            if device == "cuda":
                torch.cuda.synchronize()

        return work

    return {name: stepping(optimizer) for name, optimizer in optimizers.items()}


def changed_by_slicing(rule: str, fast: bool, dtype: torch.dtype, numel: int = 1003) -> int:
    """How many of `numel` parameters get other bits in five steps when they are cut into slices of three."""
    ours, _, given = RULES[rule]
    outcomes: list[Tensor] = []
    for size in (numel, 3):
        generator = torch.Generator().manual_seed(0)
        whole = torch.randn(numel, generator=generator, dtype=dtype)
        params = [piece.clone().requires_grad_() for piece in whole.split(size)]
        optimizer = ours(params, **given | {"lr": 0.0123}, fast=fast)
        for _ in range(5):
            grad = torch.randn(numel, generator=generator, dtype=dtype)
            for param, piece in zip(params, grad.split(size), strict=True):
                param.grad = piece
            optimizer.step()
        outcomes.append(torch.cat([param.detach() for param in params]))
    return int((outcomes[0] != outcomes[1]).sum())


def print_slicing(as_json: bool) -> None:
    """What cutting the flat parameters does to the bits, measured."""
    for rule in RULES:
        for dtype in (torch.float32, torch.float64):
            changed = {way: changed_by_slicing(rule, way == "fast", dtype) for way in ("readable", "fast")}
            if as_json:
                print(
                    json.dumps(
                        {
                            "title": "slicing",
                            "rule": rule,
                            "dtype": str(dtype),
                            "changed": changed,
                            "of": 1003,
                        }
                    )
                )
            else:
                counts = ", ".join(f"{way} {count}" for way, count in changed.items())
                print(f"{rule}, {dtype}: parameters of 1003 that slices of three change in 5 steps: {counts}")


def main() -> int:
    """Measure on one thread and on torch's default number of them, on a GPU once; 1 when a target is missed."""
    parser = options("Our optimizers against torch's foreach and fused ones.", rounds=31)
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[1, torch.get_num_threads()], help="thread counts"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the parameters are")
    given = parser.parse_args()
    params = make_params(given.device)
    size = f"{len(params)} tensors, {sum(param.numel() for param in params) / 1e6:.1f} M parameters"
    met: list[bool] = []
    for threads in given.threads[-1:] if given.device == "cuda" else sorted(set(given.threads)):
        torch.set_num_threads(threads)
        for rule in RULES:
            seconds = interleave(rivals(rule, params, given.device), given.rounds)
            met.append(
                report(
                    f"{rule}, {size}, {given.device}", seconds, "foreach", TARGETS[given.device], given.json
                )
            )
    print_slicing(given.json)
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
