"""Training divided by an object of Shoal's, by the first argument; the second plants a bug."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import shoal

HOW, BUG = sys.argv[1:3] if __name__ == "__main__" else ("", "")


def adam(params):
    return torch.optim.Adam(params, 0.01)


def divided(model):
    """The step of all workers."""
    if HOW == "onecopy":
        return shoal.OneCopy(model, adam).step
    if HOW == "afterwards":
        kept = shoal.zero(model)
        optimizer = adam(model.parameters())
        return lambda: (kept, optimizer.step())
    return shoal.zero(model, adam, int(HOW), shoal.join(kind="gloo") if BUG == "gathered" else None).step


if __name__ == "__main__":
    group = shoal.join(kind="gloo" if BUG == "gathered" else "auto")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(48, 6), torch.randint(0, 4, (48,)))
    model = nn.Linear(6, 4)
    if HOW in ("dp", "local"):
        shoal.train(model="mlp", data="synthetic", strategy=HOW, workers=2, progress=False)
        sys.exit()
    step = divided(model)
    for inputs, labels in DataLoader(data, 8, sampler=DistributedSampler(data, group.size, group.rank)):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        (loss / group.size if BUG == "mean twice" else loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step()
