"""What the workers of `rpc` do in its contract: functions that processes of one world run."""

import os
import time

import torch
from strategy_cases import INPUTS, OPTIMIZERS, OUTPUTS, made, rate, replica, share
from torch import nn

from shoal.comm.traced import traced
from shoal.config.sections.sync import RpcConfig
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.rpc.rpc import Rpc
from shoal.strategies.strategy import Pause, Serving
from shoal.training import checkpoint
from shoal.training.progress import Progress

COUNTS = (12, 7, 2, 12)
"""Samples of each step: uneven micro-batches, and fewer samples than micro-batches."""
FIRST, LAST = 2, len(COUNTS)


def plain():
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, OUTPUTS))


def with_statistics():
    """A model with buffers in its second stage."""
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, OUTPUTS))


def batch(step):
    return share(step, 0, COUNTS[step])


def rpc(group, optimizer, seed=0, network=plain, on_nonfinite="stop", **settings):
    """The strategy, and its group, which counts."""
    group = traced(group)
    mine = replica(OPTIMIZERS[optimizer], seed=seed, network=network)
    return made(Rpc, RpcConfig(**settings), mine, group, on_nonfinite=on_nonfinite), group


def wholes_of(strategy, group):
    return {name: tensor.clone() for name, tensor in WholeTensors(strategy.pieces(), group, prefix="")}


def run_steps(strategy, first, last, after_step=lambda loss: None):
    """Take steps, and pause after each; a worker that serves answers."""
    if strategy.serves:
        for step in range(first, last):
            assert strategy.serve(Serving()) == Pause({"step": step}, is_end=step == last - 1)
            after_step(None)
        return
    for step in range(first, last):
        loss = strategy.step(batch(step), rate(step)).loss
        strategy.pause(Pause({"step": step}, is_end=step == last - 1))
        after_step(loss.item())


def history(group, optimizer, settings):
    """The whole state and the loss after every step, on rank 0. Another seed on every worker: rank 0's counts."""
    strategy, group = rpc(group, optimizer, seed=group.rank, **settings)
    found = []
    run_steps(strategy, 0, LAST, lambda loss: found.append((wholes_of(strategy, group), loss)))
    strategy.close()
    return found


def save(group, folder):
    """Train, and save."""
    strategy, group = rpc(group, "adam", network=with_statistics)
    run_steps(strategy, 0, FIRST)
    checkpoint.save(folder, strategy.pieces(), Progress(step=FIRST), keep=1, group=group)
    strategy.close()
    return sorted(piece.name for piece in strategy.pieces())


def load(group, folder):
    """Load what others saved, and train on; the whole state at the end."""
    strategy, group = rpc(group, "adam", seed=9, network=with_statistics)
    strategy.load(checkpoint.latest(folder).pieces())
    run_steps(strategy, FIRST, LAST)
    state = wholes_of(strategy, group)
    strategy.close()
    return state


def evaluate(group):
    """Loss and correct predictions on the driver, and the bytes of one step on each worker."""
    strategy, group = rpc(group, "sgd", microbatches=2)
    group.totals.clear()
    sums = None
    if not strategy.serves:
        (part,) = batch(0).parts
        sums = strategy.evaluate(part)
        strategy.step(batch(0), 0.1)
        strategy.pause(Pause({}, is_end=True))
    else:
        strategy.serve(Serving())
    sent = group.totals["rpc"].num_bytes
    strategy.close()
    return sent, sums and (sums.loss.item(), sums.correct.item(), sums.predictions, sums.samples)


def spoiled(group):
    """A step with NaN in the second stage's weights is left out; the other stage's weights stay as they are."""
    strategy, group = rpc(group, "sgd", on_nonfinite="skip")
    before = {piece.name: piece.tensor.clone() for piece in strategy.pieces()}
    if group.rank == 2:
        with torch.no_grad():
            next(piece for piece in strategy.pieces() if "weight" in piece.name).tensor[0, 0] = torch.nan
    group.barrier().wait()
    if strategy.serves:
        strategy.serve(Serving())
    else:
        strategy.step(batch(0), 0.1)
        strategy.pause(Pause({}, is_end=True))
    after = {piece.name: piece.tensor for piece in strategy.pieces()}
    strategy.close()
    return {name: (tensor != before[name]).sum().item() for name, tensor in after.items()}


def stopped(group):
    """The stop signal that the driver's step returns, when a stage alone has received one."""
    strategy, group = rpc(group, "sgd")
    logged = []

    def stepped(result, num_samples, lr):
        logged.append((round(result.loss.item(), 6), num_samples, lr))

    if strategy.serves:
        strategy.serve(Serving(lambda: 15 if group.rank == 2 else 0, stepped))
    else:
        result = strategy.step(batch(0), 0.1)
        strategy.pause(Pause({}, is_end=True))
        logged = [result.stop_signal, round(result.loss.item(), 6)]
    strategy.close()
    return logged


def lost_at_the_end(group):
    """After the last step, rank 2 dies instead of ending its agent together with the others."""
    strategy, group = rpc(group, "sgd")
    run_steps(strategy, 0, 1)
    group.barrier().wait()  # all calls are answered
    if group.rank == 2:
        os._exit(3)
    strategy.close()


def watch(group):
    """Rank 1 dies while rank 0 is busy outside of the group's calls, and looks for it."""
    group.barrier().wait()
    if group.rank == 1:
        os._exit(3)
    started = time.monotonic()
    while True:
        group.check_members("an answer", time.monotonic() - started)
        time.sleep(0.05)
