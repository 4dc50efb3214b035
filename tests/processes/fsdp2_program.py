"""A program for FSDP2: layers sharded one by one on meta, values, an optimizer afterwards, a checkpoint at the end.

torchrun --nproc-per-node 2 fsdp2_program.py CHECKPOINT
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

VOCABULARY, LENGTH, WIDTH, STEPS = 32, 8, 16, 3
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.narrow(F.gelu(self.wide(x)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x)).flatten(0, 1)


def batches(start):
    draw = torch.Generator().manual_seed(1)
    return torch.randint(VOCABULARY, (2 * STEPS, 8, LENGTH), generator=draw)[start : start + STEPS]


def train(path):
    dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)
    with torch.device("meta"):
        model = Transformer()
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device="cpu")
    model.apply(lambda module: module.reset_parameters() if hasattr(module, "reset_parameters") else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    start = 0
    if path.exists():
        start, state = STEPS, torch.load(path, mmap=True, weights_only=True)
        set_state_dict(model, optimizer, model_state_dict=state[0], optim_state_dict=state[1], options=WHOLE)
    for tokens in batches(start):
        mine = tokens[dist.get_rank() :: dist.get_world_size()]
        loss = F.cross_entropy(model(mine), mine.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
    state = get_state_dict(model, optimizer, options=WHOLE)
    if dist.get_rank() == 0:
        torch.save(state, f"{path}.new")
        Path(f"{path}.new").replace(path)
    dist.destroy_process_group()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
