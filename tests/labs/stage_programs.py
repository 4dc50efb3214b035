"""Programs of students for Lab 4: written otherwise than ours, right, and each wrong in one place."""

RIGHT = """
import argparse, os
from pathlib import Path
import torch, torch.nn as nn
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef
from dist_utils import dist_init, init_parameters


class SubModel1(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x_rref):
        return self.features(x_rref.to_here())

    def parameter_rrefs(self):
        return [RRef(p) for p in self.parameters()]


class SubModel2(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 10)

    def forward(self, x_rref):
        x = x_rref.to_here().view(-1, 400)
        x = torch.relu(self.fc1(x))
        return self.fc2(x)

    def parameter_rrefs(self):
        return [RRef(p) for p in self.parameters()]


class ParallelNet(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.rref1 = rpc.remote("worker1" if n > 2 else "worker0", SubModel1)
        self.rref2 = rpc.remote("worker2" if n > 2 else "worker1", SubModel2)

    def forward(self, x):
        y_rref = self.rref1.remote().forward(RRef(x))
        return self.rref2.rpc_sync().forward(y_rref)

    def pipelined(self, x, parts):
        futures = []
        for part in x.split(len(x) // parts):
            y_rref = self.rref1.remote().forward(RRef(part))
            futures.append(self.rref2.rpc_async().forward(y_rref))
        return torch.cat(torch.futures.wait_all(futures))

    def parameter_rrefs(self):
        return self.rref1.rpc_sync().parameter_rrefs() + self.rref2.rpc_sync().parameter_rrefs()


def train(args):
    model = ParallelNet(args.n_devices)
    optimizer = DistributedOptimizer(torch.optim.Adam, model.parameter_rrefs(), lr=0.001)
    criterion = nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(0)
    for step in range(4):
        inputs = torch.randn(16, 1, 28, 28, generator=generator)
        labels = torch.randint(0, 10, (16,), generator=generator)
        with dist_autograd.context() as context_id:
            outputs = model.pipelined(inputs, args.micro) if args.micro > 1 else model(inputs)
            loss = criterion(outputs, labels)
            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_devices", type=int)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--master_addr")
    parser.add_argument("--master_port")
    parser.add_argument("--micro", type=int, default=1)
    args = parser.parse_args()
    dist_init(args.n_devices, args.rank, args.master_addr, args.master_port)
    if args.rank == 0:
        train(args)
    rpc.shutdown()
"""

DIST_UTILS = """
import os
import torch.distributed as dist
import torch.distributed.rpc as rpc


def dist_init(world_size, rank, master_addr, master_port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = master_addr, str(master_port)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world_size)


def init_parameters(model):
    for param in model.parameters():
        dist.broadcast(param.data, src=0)
"""

HELPER = {
    "y_rref = self.rref1.remote().forward(RRef(x))\n        return self.rref2.rpc_sync().forward(y_rref)": (
        "y = _remote_method(SubModel1.forward, self.rref1, RRef(x))\n"
        "        return _remote_method(SubModel2.forward, self.rref2, RRef(y))"
    ),
    "self.rref1.rpc_sync().parameter_rrefs() + self.rref2.rpc_sync().parameter_rrefs()": (
        "_remote_method(_params, self.rref1) + _remote_method(_params, self.rref2)"
    ),
    "class ParallelNet(nn.Module):\n    def __init__(self, n):\n        super().__init__()": (
        "def _call_method(method, rref, *args):\n    return method(rref.local_value(), *args)\n\n\n"
        "def _remote_method(method, rref, *args):\n"
        "    return rpc.rpc_async(rref.owner(), _call_method, args=(method, rref, *args)).wait()\n\n\n"
        "def _params(module):\n    return [RRef(p) for p in module.parameters()]\n\n\n"
        "class ParallelNet:\n    def __init__(self, n):"
    ),
    "model(inputs)\n": "model.forward(inputs)\n",
    '    parser.add_argument("--micro", type=int, default=1)\n': "",
    "model.pipelined(inputs, args.micro) if args.micro > 1 else ": "",
}
"""The same with a helper for calls, in a model that is no module, without micro-batches."""

STEP = """            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)
"""
WRONG = {
    ("init_nothing", "init_parameters"): {
        "    optimizer = Dist": "    init_parameters(model)\n    optimizer = Dist"
    },
    ("seed_elsewhere", "init_parameters"): {
        "        torch.manual_seed(1)\n": "",
        "def train(args):\n": "def train(args):\n    torch.manual_seed(0)\n",
    },
    ("missing", "parameter_rrefs"): {" + self.rref2.rpc_sync().parameter_rrefs()": ""},
    ("copies", "parameter_rrefs"): {
        "return self.rref1.rpc_sync().parameter_rrefs() + self.rref2.rpc_sync().parameter_rrefs()": (
            "return [RRef(p) for r in (self.rref1, self.rref2) for p in r.to_here().parameters()]"
        )
    },
    ("context_left", "train_step"): {STEP: STEP.replace("            optimizer", "        optimizer")},
    ("context_reused", "train_step"): {
        "    for step in range(4):\n": "    with dist_autograd.context() as context_id:\n     for step in range(4):\n",
        "        with dist_autograd.context() as context_id:\n": "        if True:\n",
    },
    ("loss_detached", "train_step"): {
        "criterion(outputs, labels)\n": "criterion(outputs.detach().requires_grad_(False), labels)\n"
    },
    ("no_gradient", "train_step"): {
        "x_rref.to_here().view(-1, 400)": "x_rref.to_here().detach().view(-1, 400)"
    },
    ("factor", "train_step"): {"nn.CrossEntropyLoss()": 'nn.CrossEntropyLoss(reduction="sum")'},
    ("forward_outside", "train_step"): {
        "        with dist_autograd": "        outputs = model(inputs)\n        with dist_autograd",
        "            outputs = model.pipelined(inputs, args.micro) if args.micro > 1 else model(inputs)\n": "",
    },
    ("loss_value", "train_step"): {"criterion(outputs, labels)\n": "criterion(outputs, labels) + 1\n"},
    ("no_backward", "train_step"): {STEP: "".join(reversed(STEP.splitlines(keepends=True)))},
    ("local_backward", "train_step"): {"dist_autograd.backward(context_id, [loss])": "loss.backward()"},
    ("no_shutdown", "stages"): {"    rpc.shutdown()\n": ""},
    ("relu_missing", "forward"): {"nn.Conv2d(6, 16, 5), nn.ReLU(), nn": "nn.Conv2d(6, 16, 5), nn"},
    ("not_split", "stages"): {'"worker2" if n > 2 else "worker1"': '"worker1"'},
    ("raises_there", "forward"): {"torch.relu(self.fc1(x))": "torch.relu(self.fc3(x))"},
    ("serial", "forward_microbatches"): {
        "futures.append(self.rref2.rpc_async().forward(y_rref))": (
            "futures.append(self.rref2.rpc_sync().forward(y_rref))"
        ),
        "torch.cat(torch.futures.wait_all(futures))": "torch.cat(futures)",
    },
    ("stage_by_stage", "forward_microbatches"): {
        "y_rref = self.rref1.remote().forward(RRef(part))\n"
        "            futures.append(self.rref2.rpc_async().forward(y_rref))": (
            "futures.append(self.rref1.rpc_async().forward(RRef(part)))\n"
            "        shapes = torch.futures.wait_all(futures)\n"
            "        futures = [self.rref2.rpc_async().forward(RRef(y)) for y in shapes]"
        ),
    },
    ("others_labels", "forward_microbatches"): {
        "torch.cat(torch.futures.wait_all(futures))": "torch.cat(torch.futures.wait_all(futures)[::-1])"
    },
    ("called_elsewhere", "forward_microbatches"): {
        "self.rref1.rpc_sync().parameter_rrefs() + self.rref2.rpc_sync().parameter_rrefs()": (
            "[r for s in (self.rref1, self.rref2) for r in rpc.rpc_sync(s.owner(), rrefs_of, args=(s,))]"
        ),
        "class ParallelNet": (
            "def rrefs_of(rref):\n    return rref.local_value().parameter_rrefs()\n\n\nclass ParallelNet"
        ),
        "self.rref1.remote().forward(RRef(part))": "self.rref1.rpc_async().forward(RRef(part))",
        "self.rref2.rpc_async().forward(y_rref)": "self.rref2.rpc_async().forward(RRef(y_rref.wait()))",
    },
}
"""Fault and task → what is written otherwise."""


def changed(program, replacements):
    """The program with some of its lines written otherwise."""
    for old, new in replacements.items():
        assert old in program, old
        program = program.replace(old, new)
    return program
