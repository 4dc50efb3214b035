"""Models of Hugging Face's transformers for `shoal train`: they take a batch of tokens and return the scores.

    pip install 'shoal[hf]'
    shoal train --model examples.hf:gpt2_small --data synthetic --data.task text --strategy zero --workers 2

Our losses take a tensor, and models of transformers return an object with several: `Scores` keeps the one that counts.
The data's labels are already the next tokens, so the scores and the labels of one position belong together; with
`labels=`, transformers would shift them once more. `examples/hf_export.py` turns such a run into a folder that
`from_pretrained` loads.
"""

from typing import Any

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError


class Scores(nn.Module):
    """A causal language model of transformers, `lm`, as a function from tokens to scores."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm = lm

    def forward(self, tokens: Tensor) -> Tensor:
        """[N, length] → [N, length, vocabulary]."""
        return self.lm(input_ids=tokens, use_cache=False).logits


def gpt2_small(
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    length: int = 64,
    vocabulary: int = 256,
    dropout: float = 0.0,
    checkpointing: bool = False,
    dtype: str = "float32",
) -> Scores:
    """GPT-2 with random weights, small by default; 12 layers of width 768 with 12 heads are the published size.

    The scores are computed with the weights of the embedding (tied weights). `checkpointing` computes the activations
    of a block again in backward instead of keeping them. `--seed` determines the initial weights.
    """
    config = transformers().GPT2Config(
        n_layer=layers, n_embd=width, n_head=heads, n_positions=length, vocab_size=vocabulary,
        embd_pdrop=dropout, attn_pdrop=dropout, resid_pdrop=dropout, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    lm = transformers().GPT2LMHeadModel(config).to(getattr(torch, dtype))
    if checkpointing:
        lm.gradient_checkpointing_enable()
    return Scores(lm)


def transformers() -> Any:
    """The package `transformers`, which shoal does not require."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"this model needs the package transformers, which cannot be imported: {error}",
            "Install it: pip install 'shoal[hf]'",
        ) from None
    return transformers
