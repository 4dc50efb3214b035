"""Folders in the course's own form, written as students write them: right ones, by the number of the lab."""

from stage_programs import DIST_UTILS as STAGE_UTILS
from stage_programs import RIGHT as STAGES

NET = """
class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def mnist(train):
    return torchvision.datasets.MNIST("./data", train=train, download=True, transform=torchvision.transforms.ToTensor())
"""

OPTIMIZERS = """
import torch


class BaseOptimizer():
    def __init__(self, params, lr=0.001):
        self.params = list(params)
        self.lr = lr

    def step(self):
        raise NotImplementedError

    def zero_grad(self):
        for p in self.params:
            if p.grad is not None:
                p.grad.detach_()
                p.grad.zero_()


class GdOptimizer(BaseOptimizer):
    def __init__(self, params, lr=0.001):
        super().__init__(params, lr)

    def step(self):
        for p in self.params:
            if p.grad is not None:
                p.data -= self.lr * p.grad


class SGDOptimizer(GdOptimizer):
    pass


class AdamOptimizer(BaseOptimizer):
    def __init__(self, params, lr, b1=0.9, b2=0.999):
        super().__init__(params, lr)
        self.b1, self.b2, self.t = b1, b2, 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]

    def step(self):
        self.t += 1
        for i, p in enumerate(self.params):
            self.m[i] = self.b1 * self.m[i] + (1 - self.b1) * p.grad
            self.v[i] = self.b2 * self.v[i] + (1 - self.b2) * p.grad ** 2
            m_hat = self.m[i] / (1 - self.b1 ** self.t)
            v_hat = self.v[i] / (1 - self.b2 ** self.t)
            p.data -= self.lr * m_hat / (torch.sqrt(v_hat) + 1e-8)
"""

LAB1 = f"""
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
import matplotlib.pyplot as plt
from MyOptimizer import GdOptimizer, SGDOptimizer, AdamOptimizer
{NET}

def train(model, dataloader, optimizer, loss_fn, num_epochs=2):
    losses = []
    for epoch in range(num_epochs):
        for i, (inputs, labels) in enumerate(dataloader):
            inputs, labels = inputs.cuda(), labels.cuda()
            loss = loss_fn(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    data = mnist(True)
    for name in ("gd", "sgd", "adam"):
        model = Net().cuda()
        if name == "gd":
            loader = torch.utils.data.DataLoader(data, batch_size=len(data), shuffle=True, num_workers=2)
            optimizer = GdOptimizer(model.parameters(), lr=0.1)
        else:
            loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
            optimizer = SGDOptimizer(model.parameters(), lr=0.01)
            if name == "adam":
                optimizer = AdamOptimizer(model.parameters(), lr=0.001, b1=0.9, b2=0.999)
        plt.plot(train(model, loader, optimizer, nn.CrossEntropyLoss()), label=name)
    plt.savefig("loss.png")
"""

MEETING = """
import os
import torch
import torch.distributed as dist


def dist_init(world_size, rank, master_addr='localhost', master_port='12355'):
    os.environ['MASTER_ADDR'] = master_addr
    os.environ['MASTER_PORT'] = master_port
    dist.init_process_group(backend="nccl", rank=rank, world_size=world_size)
    assert dist.is_initialized(), "not initialised"
    return True


def get_world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


def init_parameters(model):
    if get_world_size() > 1:
        for param in model.parameters():
            dist.broadcast(param.data, 0)

"""
AVERAGES = (
    MEETING
    + """
def allreduce_average_gradients(model):
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad.data, op=dist.ReduceOp.AVG)


def allgather_average_gradients(model):
    size = get_world_size()
    for param in model.parameters():
        if param.grad is not None:
            parts = [torch.zeros_like(param.grad) for _ in range(size)]
            dist.all_gather(parts, param.grad)
            param.grad = torch.stack(parts).mean(0)
"""
)

FLAGS = """
def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_devices", default=1, type=int)
    parser.add_argument("--rank", default=0, type=int)
    parser.add_argument("--gpu", default="0", type=str)
    parser.add_argument("--master_addr", default="localhost", type=str)
    parser.add_argument("--master_port", default="12355", type=str)
    return parser.parse_args()
"""

LAB2 = f"""
import argparse, os, time
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.utils.data.distributed import DistributedSampler
import dist_utils
{NET}

def train(model, dataloader, loss_fn, optimizer, rank, method, bottleneck, num_epochs=1):
    model.train()
    dist_utils.init_parameters(model)
    spent = 0.
    for epoch in range(num_epochs):
        for i, (inputs, labels) in enumerate(dataloader):
            inputs, labels = inputs.cuda(), labels.cuda()
            loss = loss_fn(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            if bottleneck and rank == 1:
                time.sleep(0.1)
            torch.cuda.synchronize()
            start = time.time()
            if method == "allreduce":
                dist_utils.allreduce_average_gradients(model)
            else:
                dist_utils.allgather_average_gradients(model)
            torch.cuda.synchronize()
            spent += time.time() - start
            optimizer.step()
    print(method, spent)

{FLAGS}

if __name__ == "__main__":
    args = parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
    dist_utils.dist_init(args.n_devices, args.rank, args.master_addr, args.master_port)
    data = mnist(True)
    sampler = DistributedSampler(data, num_replicas=args.n_devices, rank=args.rank)
    loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)
    for method in ("allreduce", "allgather"):
        for bottleneck in (False, True):
            model = Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
            train(model, loader, nn.CrossEntropyLoss(), optimizer, args.rank, method, bottleneck)
"""

SAMPLER = """
import math
import torch
from torch.utils.data import Sampler


class MySampler(Sampler):
    def __init__(self, dataset, num_replicas, rank, shuffle=True, seed=0):
        super(Sampler, self).__init__()
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.num_samples = math.ceil(len(self.dataset) / self.num_replicas)

    def __iter__(self):
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            g = torch.Generator()
            g.manual_seed(self.seed + self.epoch)
            indices = torch.randperm(len(self.dataset), generator=g).tolist()
        indices += indices[: self.num_samples * self.num_replicas - len(indices)]
        return iter(indices[self.rank::self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        self.epoch = epoch
"""

LAB3_UTILS = (
    MEETING
    + """
def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size
"""
)

LAB3 = f"""
import argparse, os
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.multiprocessing as mp
import torchvision
import dist_utils
from sampler import MySampler
{NET}

def train(model, dataloader, loss_fn, optimizer, num_epochs=2):
    dist_utils.init_parameters(model)
    for epoch in range(num_epochs):
        dataloader.sampler.set_epoch(epoch)
        for i, (inputs, labels) in enumerate(dataloader):
            inputs, labels = inputs.cuda(), labels.cuda()
            loss = loss_fn(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            dist_utils.average_gradients(model)
            optimizer.step()

{FLAGS}

def main(rank, args):
    dist_utils.dist_init(args.n_devices, rank, args.master_addr, args.master_port)
    data = mnist(True)
    sampler = MySampler(data, args.n_devices, rank, shuffle=True, seed=7)
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=False, sampler=sampler)
    model = Net().cuda()
    train(model, loader, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.01))


if __name__ == "__main__":
    args = parse_args()
    mp.spawn(main, (args,), nprocs=args.n_devices)
"""

RIGHT = {
    "1": {"task1/pytorch/MyOptimizer.py": OPTIMIZERS, "task1/pytorch/model.py": LAB1},
    "2": {"task2/dist_utils.py": AVERAGES, "task2/model.py": LAB2},
    "3": {"task3/sampler.py": SAMPLER, "task3/dist_utils.py": LAB3_UTILS, "task3/model.py": LAB3},
    "4": {"task4/dist_utils.py": STAGE_UTILS, "task4/model.py": STAGES},
}
