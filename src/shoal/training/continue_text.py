"""How a model of text goes on with a beginning: one byte after the other, drawn from its probabilities."""

import warnings

import torch
from torch import nn

from shoal.config.schema import RunConfig
from shoal.data.dataset import BYTES
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal.training.build import torch_settings
from shoal.training.reopen import saved_model
from shoal.training.saved import Saved

TEMPERATURE = 0.8
"""Below 1, likely bytes become likelier: a small model makes fewer mistakes."""


def continue_text(saved: Saved, config: RunConfig, beginning: str, count: int = 300) -> str:
    """The beginning, and `count` bytes as saved weights go on; the same ones each time, by the seed of the run."""
    with torch_settings(config) as device:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how the data are divided, for example, does not matter here
            data = load(config.data)
        if data.task != "text" or data.outputs != BYTES:
            raise ConfigError(
                f"data {data.name} is no text of bytes, so its model cannot go on with a text",
                "Train one on text: shoal train gpt-tiny.",
            )
        model = saved_model(saved, config, data).to(device).eval()
        (length,) = data.input_shape
        return continued(model, beginning, count, length, config.seed)


@torch.inference_mode()
def continued(model: nn.Module, beginning: str, count: int, length: int, seed: int = 0) -> str:
    """The beginning, and `count` bytes that a model adds; it sees the last `length` bytes of what stands there."""
    device = next(model.parameters()).device
    draw = torch.Generator().manual_seed(seed)
    text = list(beginning.encode()) or [ord("\n")]
    for _ in range(count):
        scores = model(torch.tensor([text[-length:]], device=device))[0, -1].float().cpu()
        text.append(int(torch.multinomial((scores / TEMPERATURE).softmax(0), 1, generator=draw)))
    return bytes(text).decode(errors="replace").replace("\r\n", "\n")
