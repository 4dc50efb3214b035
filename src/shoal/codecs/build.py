"""Build a codec by its name, or from the user's own class."""

from collections.abc import Callable
from typing import Any

import torch

from shoal.codecs.codec import Codec, Dense
from shoal.codecs.power_sgd import PowerSgd
from shoal.codecs.quantised import Half, Integer, Qsgd, TernGrad
from shoal.codecs.sign import OneBit, Sign
from shoal.codecs.sparse import AverageThreshold, Dgc, RandomK, Threshold, TopK
from shoal.config.custom import calling, check_options, load
from shoal.config.sections.compression import Encoding
from shoal.config.sections.values import Custom, is_own
from shoal.errors import ConfigError

CODECS: dict[str, Callable[..., Codec]] = {
    "none": lambda feedback: Dense(),
    "fp16": lambda feedback: Half(torch.float16),
    "bf16": lambda feedback: Half(torch.bfloat16),
    "int8": lambda feedback, **given: Integer(8, **given),
    "int4": lambda feedback, **given: Integer(4, **given),
    # With feedback a codec must be a contraction; without, better unbiased.
    "qsgd": lambda feedback, **given: Qsgd(is_damped=feedback, **given),
    "terngrad": lambda feedback, **given: TernGrad(is_damped=feedback, **given),
    "sign": lambda feedback, **given: Sign(**given),
    "onebit": lambda feedback, **given: OneBit(**given),
    "topk": lambda feedback, **given: TopK(**given),
    "randomk": lambda feedback, **given: RandomK(is_scaled=not feedback, **given),
    "threshold": lambda feedback, **given: Threshold(**given),
    "average": lambda feedback, **given: AverageThreshold(**given),
    "dgc": lambda feedback, **given: Dgc(**given),
    "powersgd": lambda feedback, **given: PowerSgd(**given),
}
"""Each takes whether feedback is on, and the settings that `config/sections/compression.py` lists for it."""


def build_codec(encoding: Encoding) -> Codec:
    """The codec of an encoding."""
    if not is_own(encoding.codec):
        settings: dict[str, Any] = encoding.settings
        return CODECS[encoding.codec](encoding.feedback, **settings)
    config = Custom(name=encoding.codec)
    with calling("exchange.codec", config):
        function = load("exchange.codec", config)
        check_options("exchange.codec", config, function)
        made = function()
    if not isinstance(made, Codec):
        raise ConfigError(
            f"codec {config.name} is of type {type(made).__name__}, expected a Codec",
            "Derive it from shoal.codecs.codec.Codec, or from Linear if workers can sum its payloads.",
        )
    return made
