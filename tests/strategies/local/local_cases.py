"""What the tests of `local` share: a simulation of all workers on one machine, and runs of a few steps."""

from dataclasses import replace

import torch
from strategy_cases import BATCH, rate, replica, share, share_of, single

STEPS = 9


def weights_of(strategy):
    """The weights that this worker trains with, as one vector."""
    return torch.cat([param.detach().reshape(-1) for param in strategy._layout.params.values()]).clone()


def trained(strategy, shares, steps=STEPS, first=0, saves=False):
    """The weights after every step, before anything is averaged to save them."""
    history = []
    for step in range(first, steps):
        strategy.step(share_of(strategy, step, shares), rate(step))
        history.append(weights_of(strategy))
        if saves:
            strategy.consolidate()
    return history


def simulate(
    optimizer, shares, every, outer_lr=1.0, outer_momentum=0.0, fragments=1, overlap=0, moments="keep"
):
    """Every worker's weights after every step, as vectors: all workers in one loop, written from the equations."""
    assert moments == "keep"
    copies = [replica(optimizer) for _ in shares]
    workers = [single(copy) for copy in copies]
    theta = [weights_of(worker) for worker in workers]
    numel = len(theta[0])
    ranges = [slice(numel * p // fragments, numel * (p + 1) // fragments) for p in range(fragments)]
    anchor, momentum = theta[0].clone(), torch.zeros(numel, dtype=torch.float64)
    samples = torch.zeros(fragments, len(shares), dtype=torch.float64)
    sent, history = [], []
    for step in range(1, STEPS + 1):
        for i, worker in enumerate(workers):
            if shares[i]:
                mine = share(step - 1, sum(shares[:i]), shares[i])
                worker.step(replace(mine, num_samples_global=shares[i]), rate(step - 1))
            else:
                for param in copies[i].params.values():
                    param.grad = torch.zeros_like(param)
                copies[i].update(rate(step - 1))
            theta[i] = weights_of(worker)
        samples += torch.tensor(shares, dtype=torch.float64) / BATCH

        def deliver(step=step):
            while sent and step - sent[0][0] >= overlap:
                _, where, at_start, mean = sent.pop(0)
                momentum[where] = outer_momentum * momentum[where] + mean
                anchor[where] -= outer_lr * (mean + outer_momentum * momentum[where])
                for i in range(len(shares)):
                    theta[i][where] += anchor[where] - at_start[i]

        deliver()
        for p, where in enumerate(ranges):
            if (step + p * every // fragments) % every == 0:
                weights = samples[p] / samples[p].sum()
                mean = sum(weights[i] * (anchor[where] - theta[i][where]) for i in range(len(shares)))
                sent.append((step, where, [each[where].clone() for each in theta], mean))
                samples[p] = 0
        deliver()
        for i, copy in enumerate(copies):
            start = 0
            for param in copy.params.values():
                with torch.no_grad():
                    param.copy_(theta[i][start : start + param.numel()].view_as(param))
                start += param.numel()
        history.append([each.clone() for each in theta])
    return history
