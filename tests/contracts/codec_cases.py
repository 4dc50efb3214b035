"""Every codec, in the variants that behave differently, and what is published about its error."""

import math

import torch

from shoal.codecs.codec import Dense, Form
from shoal.codecs.power_sgd import PowerSgd
from shoal.codecs.quantised import Half, Integer, Qsgd, TernGrad
from shoal.codecs.sign import OneBit, Sign
from shoal.codecs.sparse import AverageThreshold, Dgc, RandomK, Threshold, TopK

CODECS = {
    "none": Dense(),
    "fp16": Half(torch.float16),
    "bf16": Half(torch.bfloat16),
    "int8": Integer(8, 32),
    "int4": Integer(4, 32),
    "qsgd, 4 bits": Qsgd(4, 32),
    "qsgd, 2 bits": Qsgd(2, 32),
    "qsgd, 16 bits": Qsgd(16, 32),
    "qsgd, damped": Qsgd(2, 32, is_damped=True),
    "terngrad": TernGrad(0.0),
    "terngrad, clipped": TernGrad(2.5),
    "terngrad, damped": TernGrad(0.0, is_damped=True),
    "sign": Sign(vote=False),
    "onebit": OneBit(vote=False),
    "topk": TopK(0.1),
    "randomk": RandomK(0.1),
    "randomk, scaled": RandomK(0.1, is_scaled=True),
    "threshold": Threshold(ratio=0.2, threshold=0.5),
    "average": AverageThreshold(0.1, 0.9),
    "dgc": Dgc(0.1, momentum=0.0, clip=0.0),
    "powersgd": PowerSgd(2),
}
SHAPES = [(9, 14), (7,), (1,), (0,), (257,), (4, 3, 5)]

RANDOM = {name for name in CODECS if name.startswith(("int", "qsgd", "terngrad", "randomk"))}


def gradient(shape, seed=0, dtype=torch.float64):
    """Both signs, magnitudes from a thousandth to ten."""
    draw = torch.Generator().manual_seed(seed)
    spread = 10 ** (4 * torch.rand(shape, generator=draw, dtype=torch.float64) - 3)
    return (torch.randn(shape, generator=draw, dtype=torch.float64) * spread).to(dtype)


def fitted(codec, x):
    """The codec for a gradient, and its memory before the first step."""
    form = Form.of(x)
    own = codec.fitted(form)
    return own, form, own.new_memory(form, seed=1)


def round_trip(codec, x, seed=0):
    """What the others decode of a gradient."""
    own, form, memory = fitted(codec, x)
    return own.decode(own.encode(x, seed, memory), form, seed)


def published_error(name, x):
    """The published E‖x − C(x)‖² / ‖x‖², and whether it is exact (else it is a bound)."""
    n, square = x.numel(), x.square().sum().item()
    ones, top = x.abs().sum().item(), x.abs().max().item()
    k = math.ceil(0.1 * n)
    variance = Qsgd(2, 32).variance
    return {
        "none": (0.0, True),
        "fp16": (2.0**-22, False),
        "bf16": (2.0**-16, False),
        "int8": (32 / (4 * 127**2), False),
        "int4": (32 / (4 * 7**2), False),
        "qsgd, 4 bits": (Qsgd(4, 32).variance, False),
        "qsgd, 2 bits": (variance, False),
        "qsgd, 16 bits": (Qsgd(16, 32).variance, False),
        "qsgd, damped": (variance / (1 + variance), False),
        "terngrad": (top * ones / square - 1, True),
        "terngrad, damped": (1 - square / (top * ones), True),
        "sign": (1 - ones**2 / (n * square), True),
        "onebit": (1 - ones**2 / (n * square), False),
        "topk": (1 - k / n, False),
        "randomk": (1 - k / n, True),
        "randomk, scaled": (n / k - 1, True),
        "average": (1.0, False),
        "dgc": (1 - k / n, False),
        "powersgd": (1.0, False),
    }.get(name)
