"""A causal language model of Hugging Face's transformers in a loop of your own, with several workers.

    pip install 'shoal[hf]'
    shoal launch --workers 2 examples/hf_causal_lm.py --strategy zero --stage 3 --save trained
    torchrun --standalone --nproc-per-node 2 examples/hf_causal_lm.py --strategy zero
    python examples/hf_causal_lm.py                                                 # one worker: the same losses

The model is a small GPT-2 with random weights, whose embedding and last layer share their weights. Each of the three
strategies below is one way to train it, and all have the result of one machine:

    ddp       every worker has a copy of the model
    onecopy   all workers of one machine map a single copy
    zero      optimizer state (stage 1), gradients (2) and parameters (3) are divided among the workers

The texts have different lengths, so the workers have different numbers of tokens. Two common errors ignore that, and
give the tokens of short texts more weight: to average the gradients of the workers' mean losses, and to divide the
mean loss of an accumulated part by the number of parts. Here a worker divides the sum over its tokens by the number of
its tokens in the whole step, and passes that number as `num_samples`.

`--save FOLDER` writes what `from_pretrained` reads. In stage 3 rank 0 first gathers the weights, one tensor at a time,
into the host's memory.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import shoal
from shoal.comm.group import Group
from shoal.config.sections.data import SyntheticConfig
from shoal.data import load
from shoal.errors import ConfigError

SEED = 0
CLIP_NORM = 1.0
IGNORED = -100


class Texts(NamedTuple):
    """Texts as rows of tokens, of one length with the padding."""

    tokens: Tensor
    """[texts, length]."""
    labels: Tensor
    """The next token of each; `IGNORED` after the end of a text."""


class Training(NamedTuple):
    """What the loop below needs of a strategy."""

    update: Callable[[list[Texts], int], None]
    """One update with this worker's parts of a batch; the number counts the tokens of all of them."""
    weights: Callable[[], Mapping[str, Tensor]]
    """All weights, on rank 0. Every worker calls it."""


def ddp(model: nn.Module, group: Group, options: argparse.Namespace) -> Training:
    """Every worker has a copy of the model; gradients are exchanged in the last backward pass of a step."""
    replica = shoal.DistributedDataParallel(model, group)
    optimizer = adamw(options)(model.parameters())

    def update(parts: list[Texts], num_tokens: int) -> None:
        optimizer.zero_grad()
        with replica.batch(num_samples=num_tokens):
            for part in parts:
                with nullcontext() if part is parts[-1] else replica.no_sync():
                    (loss_sum(replica, part) / num_tokens).backward()
        clip(model.parameters())
        optimizer.step()

    return Training(update, model.state_dict)


def onecopy(model: nn.Module, group: Group, options: argparse.Namespace) -> Training:
    """The workers of one machine map one copy of the weights, and each updates its slice of it."""
    shared = shoal.OneCopy(model, adamw(options), group)

    def update(parts: list[Texts], num_tokens: int) -> None:
        shared.zero_grad()
        for part in parts:
            (loss_sum(model, part) / num_tokens).backward()
        shared.step(num_samples=num_tokens, clip_norm=CLIP_NORM)

    return Training(update, model.state_dict)


def zero(model: nn.Module, group: Group, options: argparse.Namespace) -> Training:
    """What a step needs is divided among the workers; in stages 2 and 3 every backward pass is exchanged."""
    sharded = shoal.zero(model, adamw(options), options.stage, group, unit_mib=options.unit_mib)

    def update(parts: list[Texts], num_tokens: int) -> None:
        with sharded.batch(num_samples=num_tokens):
            for part in parts:
                (loss_sum(model, part) / num_tokens).backward()
        sharded.step(clip_norm=CLIP_NORM)

    return Training(update, sharded.model_state_dict)


STRATEGIES = {"ddp": ddp, "onecopy": onecopy, "zero": zero}


def main() -> None:
    """Train, print the loss of all workers' tokens, and save the model."""
    options = parse()
    group = shoal.join()
    multiple = group.size * options.micro_batch
    if options.batch_size % multiple:
        raise ConfigError(
            f"--batch-size {options.batch_size} is not a multiple of {multiple} "
            f"({group.size} workers × --micro-batch {options.micro_batch})",
            "All workers make equally many passes in a step.",
        )
    texts = cut_to_lengths(load(SyntheticConfig(task="text", samples=512, shape=(options.length,))).train)
    model = build(group, options)
    strategy = STRATEGIES[options.strategy](model, group, options)
    num_texts = len(texts.tokens)
    for step in range(options.steps):
        batch = torch.arange(step * options.batch_size, (step + 1) * options.batch_size) % num_texts
        mine = batch[group.rank :: group.size]
        parts = [Texts(texts.tokens[some], texts.labels[some]) for some in mine.split(options.micro_batch)]
        strategy.update(parts, sum(count_tokens(part) for part in parts))
        if step % 10 == 9 or step + 1 == options.steps:
            loss = mean_loss(model, parts, group)
            if group.rank == 0:
                sys.stdout.write(f"step {step + 1}: loss {loss:.4f}\n")
    if options.save:
        weights = strategy.weights()
        if group.rank == 0:
            model.save_pretrained(options.save, state_dict=weights)
            sys.stdout.write(f"saved {options.save}\n")
    group.close()


def build(group: Group, options: argparse.Namespace) -> Any:
    """A small GPT-2 from its configuration, with the same random weights on every worker."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError as error:
        raise ConfigError(
            f"this program needs the package transformers, which cannot be imported: {error}",
            "Install it: pip install 'shoal[hf]'",
        ) from None
    config = GPT2Config(
        n_layer=options.layers, n_embd=options.width, n_head=4, n_positions=options.length, vocab_size=256,
        bos_token_id=0, eos_token_id=0,
        # Dropout draws other masks with another number of workers, and the result would differ.
        embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    model: Any = None
    for rank in range(group.size):  # in turn: workers that are threads share torch's random state
        if rank == group.rank:
            torch.manual_seed(SEED)
            model = GPT2LMHeadModel(config)
        group.barrier().wait()
    if options.float64:
        model.double()
    if options.checkpointing:
        model.gradient_checkpointing_enable()
    return model.train()


def adamw(options: argparse.Namespace) -> Callable[[Iterable[Tensor]], torch.optim.Optimizer]:
    """Makes the optimizer of some parameters: of all, or of the slices that a worker owns."""
    return lambda params: torch.optim.AdamW(params, lr=options.lr, weight_decay=0.01)


def clip(params: Iterable[nn.Parameter]) -> None:
    """Scale the gradients to a norm of at most CLIP_NORM. (Torch's `clip_grad_norm_` first adds 1e-6 to the norm.)"""
    grads = [param.grad for param in params if param.grad is not None]
    norm = nn.utils.get_total_norm(grads)
    for grad in grads:
        grad *= min(1.0, CLIP_NORM / norm.item())


def loss_sum(model: nn.Module, part: Texts) -> Tensor:
    """−log p(next token), summed over the tokens of a part."""
    scores = model(input_ids=part.tokens, use_cache=False).logits
    return F.cross_entropy(scores.flatten(0, 1), part.labels.flatten(), ignore_index=IGNORED, reduction="sum")


def count_tokens(part: Texts) -> int:
    """The tokens that count in the loss."""
    return int((part.labels != IGNORED).sum())


@torch.no_grad()
def mean_loss(model: nn.Module, parts: list[Texts], group: Group) -> float:
    """The mean over the tokens of all workers' parts. All workers call it: parameters may have to be gathered."""
    totals = torch.zeros(2, dtype=torch.float64)
    for part in parts:
        totals += torch.tensor([loss_sum(model, part).item(), count_tokens(part)], dtype=torch.float64)
    group.all_reduce(totals).wait()
    return (totals[0] / totals[1]).item()


def cut_to_lengths(texts: Any) -> Texts:
    """Texts of different lengths: some tokens at the end are padding, and their labels are ignored."""
    tokens, labels = texts.inputs.long(), texts.labels.clone()
    length = tokens.shape[1]
    lengths = length - torch.arange(len(tokens)) * 7 % (length // 2 + 1)
    labels[torch.arange(length) >= lengths[:, None]] = IGNORED
    return Texts(tokens, labels)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="A causal language model of transformers with several workers."
    )
    parser.add_argument("--strategy", choices=STRATEGIES, default="ddp")
    parser.add_argument("--stage", type=int, choices=[1, 2, 3], default=3, help="what zero divides")
    parser.add_argument("--unit-mib", type=float, default=8.0, help="parameters that zero gathers together")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=32, help="texts per step over all workers")
    parser.add_argument("--micro-batch", type=int, default=4, help="texts of one forward and backward pass")
    parser.add_argument("--checkpointing", action="store_true", help="compute activations again in backward")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--length", type=int, default=32, help="tokens of the longest text")
    parser.add_argument("--float64", action="store_true", help="compute in float64, for exact comparisons")
    parser.add_argument("--save", default="", metavar="FOLDER", help="folder for from_pretrained")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
