"""The nearest known name to one that does not exist: by the field's synonyms first, then by spelling."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_SIMILAR, _SHORT_SIMILAR = 0.75, 0.65
"""Similarity from which a spelling counts as a slip, for names and for those of up to four letters."""

SYNONYMS: dict[str, str] = {
    # flags
    "lr": "learning-rate base-lr init-lr eta",
    "batch-size": "batch bs batchsize train-batch-size global-batch-size per-device-train-batch-size minibatch",
    "micro-batch": "micro-batch-size gradient-accumulation-steps accumulate-grad-batches",
    "workers": "num-workers nproc nprocs nproc-per-node num-processes np num-gpus gpus ranks nnodes world-size",
    "world-size": "n-ranks num-ranks",
    "epochs": "epoch num-epochs n-epochs max-epochs num-train-epochs",
    "steps": "step max-steps num-steps iters iterations max-iters",
    "optimizer": "optim opt optimiser solver",
    "data": "dataset data-set datasets",
    "data-dir": "data-path data-root dataset-dir root",
    "model": "arch architecture net network backbone",
    "loss": "criterion objective loss-fn",
    "weight-decay": "wd l2",
    "clip-norm": "clip grad-clip clip-grad-norm max-norm max-grad-norm gradient-clip-val",
    "schedule": "scheduler lr-scheduler lr-schedule",
    "schedule.warmup": "warmup-steps num-warmup-steps",
    "data.samples": "num-samples",
    "data.classes": "num-classes",
    "precision": "dtype amp mixed-precision fp16 bf16",
    "threads": "num-threads omp-num-threads",
    "seed": "random-seed manual-seed",
    "device": "accelerator cuda cpu",
    "group": "backend dist-backend process-group",
    "strategy": "parallelism ddp",
    "exchange": "comm-hook compression",
    "validation": "val val-split",
    "checkpoint-every": "save-every save-steps save-interval",
    "resume": "resume-from resume-from-checkpoint checkpoint ckpt load continue",
    "runs-dir": "output-dir out-dir save-dir log-dir logdir",
    "out": "output output-dir out-dir",
    "name": "run-name experiment-name",
    "trace": "profile",
    "rank": "node-rank local-rank",
    "master": "master-address init-method rdzv-endpoint dist-url",
    "join-timeout": "timeout",
    "quiet": "silent no-progress",
    "lang": "language",
    "by": "rule partition",
    # commands
    "train": "fit run",
    "launch": "torchrun mpirun spawn",
    "evaluate": "eval test validate",
    "bench": "benchmark",
    "doctor": "diagnose info env",
    "fetch": "download get",
    "list": "ls",
    # values
    "cuda": "gpu",
    "shm": "shared-memory",
    "float32": "fp32 float",
    "bf16": "bfloat16",
    "cross_entropy": "ce nll",
    "mse": "l2",
    "mae": "l1",
    "resnet18": "resnet",
    "transformer": "gpt",
    "fashion-mnist": "fashion",
    "dirichlet": "non-iid noniid",
    "random": "iid",
}
"""Known name → other words for it, in other tools and in papers."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None if none is near.

    >>> nearest("--learning-rate", ["--lr", "--aggregate"]), nearest("version", ["train", "--version"])
    ('--lr', '--version')
    >>> nearest("--optimizer.learning_rate", ["--optimizer.lr", "--lr"]), nearest("lenett", ["mlp", "lenet"])
    ('--optimizer.lr', 'lenet')
    >>> nearest("version", ["train", "evaluate"])
    """
    names = {plain(each): each for each in known}
    asked = plain(name)
    section, dot, key = asked.rpartition(".")
    within = {
        plain.removeprefix(section + dot): each
        for plain, each in names.items()
        if dot and plain.startswith(section + dot)
    }
    return _nearest(key, within) if within else _nearest(asked, names)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The guess as the end of an error message; empty if there is none.

    >>> did_you_mean("--epoch", ["--epochs"])
    ": did you mean '--epochs'?"
    """
    guess = nearest(name, known)
    return f": did you mean '{guess}'?" if guess else ""


def _nearest(asked: str, names: Mapping[str, str]) -> str | None:
    if asked in names:
        return names[asked]
    for target, synonyms in SYNONYMS.items():
        if asked in synonyms.split() and plain(target) in names:
            return names[plain(target)]
    endings = [each for plain, each in names.items() if re.split("[.:]", plain)[-1] == asked]
    if len(endings) == 1:
        return endings[0]
    close = get_close_matches(asked, names, n=1, cutoff=_SIMILAR if len(asked) > 4 else _SHORT_SIMILAR)
    return names[close[0]] if close else None


def plain(name: str) -> str:
    """A name as it is looked up: without the dashes of a flag, and _ as -."""
    return name.lower().lstrip("-").replace("_", "-")
