"""Other forms of programs: FSDP2, nanoGPT's loop, our wrappers, a GradScaler, a closure; rank 1 is slow if asked."""

import os
import sys
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FORM, SPEED, STEPS = (*sys.argv[1:3], int(sys.argv[3])) if __name__ == "__main__" else ("", "even", 0)
MICRO_STEPS = 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)
        )

    def forward(self, x):
        if SPEED == "slow" and os.environ["LOCAL_RANK"] == "1":
            time.sleep(0.06)
        return self.layers(x)


def batch():
    return torch.randn(512, 64), torch.randint(0, 4, (512,))


def loss_of(model):
    inputs, labels = batch()
    return nn.functional.cross_entropy(model(inputs), labels)


def plain_step(model, optimizer):
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()


def nanogpt(net):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(STEPS):
        if step % 20 == 0:
            with torch.no_grad():
                loss_of(net)
        for micro in range(MICRO_STEPS):
            with model.no_sync() if micro < MICRO_STEPS - 1 else nullcontext():
                (loss_of(model) / MICRO_STEPS).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def fsdp2(net):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in net.layers:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        plain_step(net, optimizer)


def collectives(net):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(net).backward()
        flat = nn.utils.parameters_to_vector([param.grad for param in net.parameters()])
        dist.all_reduce(flat)
        for param, grad in zip(
            net.parameters(), flat.split([p.numel() for p in net.parameters()]), strict=True
        ):
            param.grad = grad.view_as(param) / dist.get_world_size()
        optimizer.step()


def scaler(net):
    model = DistributedDataParallel(net)
    optimizer, scale = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")
    for _ in range(STEPS):
        optimizer.zero_grad()
        scale.scale(loss_of(model)).backward()
        scale.step(optimizer)
        scale.update()


def closure(net):
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def again():
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(again)


def ours(net):
    import shoal

    group = shoal.join()
    model = shoal.DistributedDataParallel(net, group)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        plain_step(model, optimizer)
    group.close()


def zero(net):
    import shoal

    group = shoal.join()
    sharded = shoal.zero(net, lambda params: torch.optim.Adam(params, 1e-3), stage=3, group=group)
    for _ in range(STEPS):
        plain_step(sharded, sharded)
    group.close()


FORMS = {form.__name__: form for form in (nanogpt, fsdp2, collectives, scaler, closure, ours, zero)}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if FORM not in ("ours", "zero"):
        dist.init_process_group("gloo")
    FORMS[FORM](Net())
    if dist.is_initialized():
        dist.destroy_process_group()
