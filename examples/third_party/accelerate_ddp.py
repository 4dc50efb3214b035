"""Accelerate with shoal's wrapper: one assignment before `Accelerator` wraps the model.

    pip install accelerate
    torchrun --standalone --nproc-per-node 2 examples/third_party/accelerate_ddp.py

With `--wrapper torch` the same program uses torch\'s wrapper and ends with the same weights, to the bit.
"""

import argparse
import hashlib

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from safetensors.torch import save
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.config.sections.data import DigitsConfig
from shoal.data import load


def main() -> None:
    """Train one epoch on digits, accumulating two batches per update, and test."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wrapper", choices=["shoal", "torch"], default="shoal")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    if parser.parse_args().wrapper == "shoal":
        torch.nn.parallel.DistributedDataParallel = shoal.DistributedDataParallel
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(0)
    data = load(DigitsConfig())
    train = DataLoader(TensorDataset(data.train.inputs, data.train.labels), 32, shuffle=True)
    test = DataLoader(TensorDataset(data.test.inputs, data.test.labels), 100)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    model, optimizer, train, test = accelerator.prepare(net, optimizer, train, test)

    for pictures, labels in train:
        with accelerator.accumulate(model):  # exchanges gradients in every second step
            accelerator.backward(F.cross_entropy(model(pictures.float() / 255), labels))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    hits = torch.zeros(2)
    with torch.no_grad():
        for pictures, labels in test:
            hit = accelerator.gather_for_metrics(model(pictures.float() / 255).argmax(1) == labels)
            hits += torch.tensor([hit.sum(), len(hit)])
    accelerator.print(f"accuracy {hits[0] / hits[1]:.2%}")
    state = accelerator.get_state_dict(model)
    accelerator.print("weights sha256", hashlib.sha256(save(state)).hexdigest())
    accelerator.end_training()


if __name__ == "__main__":
    main()
