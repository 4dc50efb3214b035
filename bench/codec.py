"""Codecs: time to encode and decode 5.8 M parameters, and the link rate up to which that pays.

    python bench/codec.py [--rounds 11] [--threads 1] [--device cuda] [--json]

One round encodes every gradient of an mlp (784-2048-2048-10) once, and adds the decoded gradients to a sum once. The
break-even rate is (bits saved) / (time): on a faster link the codec takes longer than what it saves. Not included: the
residual of feedback, the memories of dgc and average, and decoding the payloads of more than one worker.

Promised, on one thread: int8 at least 2 Gbit/s, top-k 1 % at least 3, PowerSGD of rank 2 at least 10. For comparison:
top-k by torch.topk alone, whose result is the same.
"""

import json
import statistics
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from common import in_units, interleave, machine, options
from shoal.codecs.build import build_codec
from shoal.codecs.codec import Codec, Form
from shoal.config.schema import CompressedConfig

SHAPES = [(2048, 784), (2048,), (2048, 2048), (2048,), (10, 2048), (10,)]
CASES = {
    "fp16": CompressedConfig(codec="fp16"),
    "bf16": CompressedConfig(codec="bf16"),
    "int8": CompressedConfig(codec="int8"),
    "int4": CompressedConfig(codec="int4"),
    "qsgd": CompressedConfig(codec="qsgd"),
    "terngrad": CompressedConfig(codec="terngrad"),
    "sign": CompressedConfig(codec="sign"),
    "onebit": CompressedConfig(codec="onebit"),
    "topk 1 %": CompressedConfig(codec="topk", ratio=0.01),
    "randomk 1 %": CompressedConfig(codec="randomk", ratio=0.01),
    "threshold": CompressedConfig(codec="threshold", threshold=2.6, ratio=0.01),
    "average 1 %": CompressedConfig(codec="average", ratio=0.01),
    "dgc 1 %": CompressedConfig(codec="dgc", ratio=0.01),
    "powersgd, rank 2": CompressedConfig(codec="powersgd", rank=2),
}
TARGETS_GBIT = {"int8": 2.0, "topk 1 %": 3.0, "powersgd, rank 2": 10.0}
EXACT = "topk 1 % by torch.topk"


def work_of(config: CompressedConfig, gradients: list[Tensor]) -> tuple[Callable[[], None], int]:
    """One round of a codec, and the bytes that it sends."""
    parts: list[tuple[Codec, Tensor, Tensor, Tensor | None]] = []
    num_bytes = 0
    for gradient in gradients:
        form = Form.of(gradient)
        codec = build_codec(config.encoding_of("weight")).fitted(form)
        parts.append((codec, gradient, torch.zeros_like(gradient), codec.new_memory(form, seed=0)))
        num_bytes += codec.num_bytes(form)

    def work() -> None:
        for codec, gradient, total, memory in parts:
            codec.add(codec.encode(gradient, 0, memory), total, 0)
        _finish(gradients[0].device)

    return work, num_bytes


def by_torch_topk(gradients: list[Tensor]) -> Callable[[], None]:
    """What top-k takes without the sampled threshold."""
    totals = [torch.zeros_like(gradient) for gradient in gradients]

    def work() -> None:
        for gradient, total in zip(gradients, totals, strict=True):
            flat = gradient.view(-1)
            positions = flat.abs().topk(-(-flat.numel() // 100), sorted=False).indices
            total.view(-1).index_add_(0, positions, flat[positions])
        _finish(gradients[0].device)

    return work


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> int:
    """Measure, and print a table; 1 when a target is missed."""
    parser = options("Time and break-even link rate of every codec.", rounds=11)
    parser.add_argument("--threads", type=int, default=1, help="threads (default %(default)s)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the gradients are")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    draw = torch.Generator().manual_seed(0)
    gradients = [torch.randn(shape, generator=draw).to(given.device) for shape in SHAPES]
    dense_bytes = sum(gradient.nbytes for gradient in gradients)
    works = {name: work_of(config, gradients) for name, config in CASES.items()}
    sizes = {name: num_bytes for name, (_, num_bytes) in works.items()} | {EXACT: works["topk 1 %"][1]}
    seconds = interleave(
        {name: work for name, (work, _) in works.items()} | {EXACT: by_torch_topk(gradients)}, given.rounds
    )
    medians = {name: statistics.median(samples) for name, samples in seconds.items()}
    rates = {name: 8 * (dense_bytes - sizes[name]) / median / 1e9 for name, median in medians.items()}
    missed = [name for name, least in TARGETS_GBIT.items() if given.device == "cpu" and rates[name] < least]
    if given.json:
        cases = [
            {"case": name, "bytes": sizes[name], "median_s": medians[name], "break_even_gbit_s": rates[name]}
            for name in medians
        ]
        print(json.dumps({"title": "codecs", "machine": machine(), "cases": cases, "missed": missed}))
        return 1 if missed else 0
    print(f"5.8 M parameters, {given.device}   ({machine()})")
    print(f"  {'codec':24}{'bytes':>12}{'÷ float32':>11}{'encode + decode':>18}{'break-even':>16}")
    for name, median in medians.items():
        wanted = f"   ≥ {TARGETS_GBIT[name]:g}" if name in TARGETS_GBIT else ""
        print(
            f"  {name:24}{sizes[name]:12,}{sizes[name] / dense_bytes:11.3f}{in_units(median):>18}"
            f"{rates[name]:9.1f} Gbit/s{wanted}{'  MISSED' * (name in missed)}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
