"""Torch's own attention, and the layers of its transformers, computed together by the workers of a group.

`nn.MultiheadAttention` is divided by heads, as `transformer` explains: a worker has its rows of the three blocks of
`in_proj_weight` (or of `q_proj_weight`, `k_proj_weight` and `v_proj_weight`) and its columns of `out_proj`. The layers
of `nn.TransformerEncoder` and `nn.TransformerDecoder` divide their attention so, and the feed-forward layers between
column and row::

    x ─ self_attn ─ + ─ norm1 ─ linear1 ─ activation ─ dropout ─ linear2 ─ + ─ norm2
        heads                   column                 divided   row

Evaluation in torch may fuse a whole encoder layer into one operation, which takes the parts of weights for wholes;
`leave_fused_path` turns that off.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shoal.comm.group import Group
from shoal.errors import ConfigError
from shoal.strategies.tensor.convolution import DividedDropout
from shoal.strategies.tensor.linear import ColumnLinear, RowLinear, column_product
from shoal.strategies.tensor.parts import (
    Cut,
    check_divides,
    gather_from,
    my_part,
    part_of,
    spread_to,
    sum_over,
)
from shoal.strategies.tensor.transformer import BLOCKS

HEADS = 1
"""The dimension of heads in [samples, heads, queries, keys]."""


@final
class DividedMultiheadAttention(nn.Module):
    """This worker's heads of an `nn.MultiheadAttention`.

    Sends the output, [samples, queries, width], forward, and backward the gradient of each different tensor among
    query, key and value. `need_weights` sends the attention weights, too: pass False where nobody reads them.
    Dropout of the weights draws the mask of all heads on every worker, as `DividedDropout` does.
    """

    cuts: ClassVar = {
        "in_proj_weight": Cut(0, BLOCKS),
        "q_proj_weight": Cut(0),
        "k_proj_weight": Cut(0),
        "v_proj_weight": Cut(0),
        "in_proj_bias": Cut(0, BLOCKS),
        "out_proj.weight": Cut(1),
    }

    in_proj_weight: Tensor | None
    q_proj_weight: Tensor
    k_proj_weight: Tensor
    v_proj_weight: Tensor
    in_proj_bias: Tensor | None
    _qkv_same_embed_dim = False  # torch's encoder layer reads it: True would let it fuse the layer

    def __init__(self, whole: nn.MultiheadAttention, group: Group, name: str) -> None:
        super().__init__()
        if whole.bias_k is not None or whole.add_zero_attn:
            raise ConfigError(
                f"cannot divide {name}: an attention with add_bias_kv or add_zero_attn",
                f"Leave {name} out of the plan.",
            )
        check_divides(name, whole.num_heads, "heads", group)
        for key, cut in self.cuts.items():
            if key != "out_proj.weight":
                self.register_parameter(key, part_of(getattr(whole, key), cut, group))
        self.out_proj = RowLinear(whole.out_proj, group, f"{name}.out_proj")
        self.num_heads, self.batch_first, self.dropout = whole.num_heads, whole.batch_first, whole.dropout
        self._group = group

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The output and, with `need_weights`, the weights: arguments and shapes of `nn.MultiheadAttention`."""
        is_batched = query.dim() == 3
        q, k, v = (self._in_heads(each, is_batched) for each in self._projected(query, key, value))
        drops = self.training and self.dropout > 0
        # `is_causal` says what is in the mask: where there is nothing else to hide, the mask is not read.
        is_causal = is_causal and key_padding_mask is None and not (need_weights or drops)
        mask = None if is_causal else self._mask(attn_mask, key_padding_mask, q, k)
        weights = None
        if need_weights or drops:
            weights = self._weights(q, k, mask)
            seen = weights @ v
        else:
            seen = F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal)
        output = self._out_of_heads(seen, is_batched)
        if weights is None or not need_weights:
            return output, None
        if average_attn_weights:
            weights = sum_over(weights.sum(HEADS) / self.num_heads, self._group)
        else:
            weights = gather_from(weights, self._group, HEADS)
        return output, weights if is_batched else weights.squeeze(0)

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """This worker's columns of Q, K and V."""
        group, packed = self._group, self.in_proj_weight
        if packed is not None and query is key and key is value:
            return column_product(query, packed, self.in_proj_bias, group).chunk(BLOCKS, -1)
        weights = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        if packed is not None:
            weights = packed.chunk(BLOCKS)
        biases = [None] * BLOCKS if self.in_proj_bias is None else self.in_proj_bias.chunk(BLOCKS)
        inputs = query, key, value
        spread = {id(each): spread_to(each, group) for each in inputs}  # one all-reduce for each tensor
        return tuple(
            F.linear(spread[id(each)], weight, bias)
            for each, weight, bias in zip(inputs, weights, biases, strict=True)
        )

    def _in_heads(self, x: Tensor, is_batched: bool) -> Tensor:
        """[…, width / workers] in torch's order of dimensions → [samples, heads, length, width of a head]."""
        if not is_batched:
            x = x.unsqueeze(0)
        elif not self.batch_first:
            x = x.transpose(0, 1)
        return x.unflatten(-1, (self.num_heads // self._group.size, -1)).transpose(1, 2)

    def _out_of_heads(self, seen: Tensor, is_batched: bool) -> Tensor:
        """[samples, heads, length, width of a head] → the output in torch's order of dimensions."""
        # In memory, the length comes first, as in torch: dropout after it draws its mask in the order of memory.
        output = self.out_proj(seen.permute(2, 0, 1, 3).flatten(2))
        if not is_batched:
            return output.squeeze(1)
        return output.transpose(0, 1) if self.batch_first else output

    def _mask(self, attn_mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        """What is added to the scores of this worker's heads; broadcasts to [samples, heads, queries, keys]."""
        masks: list[Tensor] = []
        if attn_mask is not None:
            added = _added(attn_mask, q.dtype)
            if added.dim() == 3:  # a mask for each sample and head
                added = my_part(added.unflatten(0, (len(q), self.num_heads)), self._group, HEADS)
            masks.append(added)
        if padding is not None:
            masks.append(_added(padding, q.dtype).view(len(q), 1, 1, k.shape[-2]))
        return sum(masks[1:], masks[0]) if masks else None

    def _weights(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        """softmax(q·kᵀ / √d + mask), after dropout."""
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        if not (self.training and self.dropout > 0):
            return weights
        samples, _, *lengths = weights.shape
        ones = torch.ones((samples, self.num_heads, *lengths), dtype=weights.dtype, device=weights.device)
        return weights * my_part(F.dropout(ones, self.dropout), self._group, HEADS)


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as numbers that are added to scores: −∞ where a mask of booleans hides."""
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, -math.inf)
    return mask.to(dtype)


LAYER_PARTS: dict[str, Callable[[Any, Group, str], Any]] = {
    "self_attn": DividedMultiheadAttention,
    "multihead_attn": DividedMultiheadAttention,
    "linear1": ColumnLinear,
    "dropout": DividedDropout,
    "linear2": RowLinear,
}
"""How the modules of an encoder or decoder layer are divided; the others stay whole."""


def divided_layer(whole: Any, group: Group, name: str) -> nn.Module:
    """An encoder or decoder layer with this worker's heads and features, changed in place."""
    parts = {key: divide for key, divide in LAYER_PARTS.items() if hasattr(whole, key)}
    cuts: dict[str, Cut] = {}
    for key, divide in parts.items():
        module = getattr(whole, key)
        layer = divide(module, group, f"{name}.{key}").train(module.training)
        setattr(whole, key, layer)
        cuts |= {f"{key}.{tensor}": cut for tensor, cut in layer.cuts.items()}
    whole.cuts = cuts
    return whole


def divided_stack(whole: Any, group: Group, name: str) -> nn.Module:
    """An encoder or decoder with all its layers divided, changed in place."""
    cuts: dict[str, Cut] = {}
    for key, layer in whole.layers.named_children():
        divided: Any = divided_layer(layer, group, f"{name}.layers.{key}")
        cuts |= {f"layers.{key}.{tensor}": cut for tensor, cut in divided.cuts.items()}
    whole.cuts = cuts
    return whole


def leave_fused_path(model: nn.Module) -> None:
    """Let the encoders of a model compute layer by layer in evaluation, too, as they do in training."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        elif isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False
