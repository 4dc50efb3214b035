"""The nearest known name to one that does not exist: by the field's synonyms first, then by spelling."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_SIMILAR = 0.65
"""Similarity from which a spelling counts as a slip; below it, no guess is better than a wrong one."""

SYNONYMS: dict[str, str] = {
    # flags
    "lr": "learning-rate base-lr init-lr initial-lr eta",
    "batch-size": "batch bs batchsize train-batch-size global-batch-size per-device-train-batch-size minibatch mbs",
    "micro-batch": "micro-batch-size microbatch microbatch-size gradient-accumulation-steps accumulate-grad-batches",
    "workers": "num-workers n-workers nworkers nproc nprocs nproc-per-node num-processes n-proc np processes "
    "world-size n-devices num-gpus gpus ngpus ranks num-nodes nnodes nodes",
    "world-size": "world n-ranks num-ranks",
    "epochs": "epoch num-epochs n-epochs max-epochs num-train-epochs",
    "steps": "step max-steps num-steps iters iterations max-iters num-iterations",
    "optimizer": "optim opt optimiser solver",
    "data": "dataset data-set datasets train-data",
    "data-dir": "data-path data-root dataset-dir dataset-path datadir root",
    "model": "arch architecture net network backbone",
    "loss": "criterion objective loss-fn",
    "weight-decay": "wd l2 decay l2-regularization",
    "clip-norm": "grad-clip clip clip-grad clip-grad-norm max-norm max-grad-norm gradient-clip-val grad-norm",
    "schedule": "scheduler lr-scheduler lr-schedule lr-scheduler-type",
    "warmup": "warmup-steps num-warmup-steps warmup-iters",
    "precision": "dtype amp mixed-precision fp16 bf16 half",
    "threads": "num-threads omp-num-threads nthreads n-threads",
    "seed": "random-seed manual-seed rng-seed",
    "device": "accelerator cuda use-cuda",
    "group": "backend dist-backend comm communication-backend process-group",
    "strategy": "parallel parallelism mode",
    "exchange": "comm-hook compression hook",
    "validation": "val val-split validation-split val-fraction",
    "checkpoint-every": "save-every save-steps save-interval checkpoint-interval checkpoint-freq",
    "resume": "resume-from resume-from-checkpoint from-checkpoint ckpt checkpoint load restart continue",
    "runs-dir": "output-dir out-dir save-dir log-dir logdir results-dir",
    "out": "output output-dir out-dir save-dir",
    "name": "run-name experiment-name exp-name run-id",
    "trace": "profile profiler",
    "rank": "node-rank local-rank process-id",
    "master": "master-addr master-address init-method rdzv-endpoint dist-url host",
    "join-timeout": "timeout rdzv-timeout dist-timeout",
    "gpu": "gpu-id device-id local-rank",
    "quiet": "silent q no-progress",
    "json": "as-json format-json",
    "lang": "language locale",
    "quick": "fast short smoke",
    "by": "rule method partition",
    "op": "operation collective",
    # commands
    "--version": "version",
    "train": "fit run",
    "launch": "torchrun spawn start mpirun",
    "evaluate": "eval test validate score",
    "compare": "diff versus",
    "bench": "benchmark benchmarks perf",
    "doctor": "diagnose info env collect-env status",
    "graph": "draw plot visualize autograd",
    "fetch": "download get pull",
    "verify": "check validate checksum",
    "list": "ls show",
    "partition": "split shard divide",
    # values
    "cuda": "gpu nvidia",
    "auto": "default",
    "shm": "shared-memory sharedmemory sharedmem",
    "processes": "process multiprocessing",
    "float32": "fp32 float f32",
    "bf16": "bfloat16",
    "cross_entropy": "ce nll crossentropyloss nll-loss",
    "mse": "l2 mseloss squared",
    "mae": "l1 l1loss l1-loss",
    "all_reduce": "sum allreduce",
    "ddp": "distributed dataparallel distributed-data-parallel data-parallel",
    "resnet18": "resnet",
    "transformer": "gpt decoder",
    "lenet": "cnn lenet5 lenet-5 convnet",
    "mlp": "fc dense",
    "fashion-mnist": "fashion fashionmnist",
    "random": "iid",
    "dirichlet": "non-iid noniid",
    "zh": "cn chinese zh-cn",
    "en": "english en-us",
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
    names = {_plain(each): each for each in known}
    asked = _plain(name)
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
        if asked in synonyms.split() and _plain(target) in names:
            return names[_plain(target)]
    endings = [each for plain, each in names.items() if re.split("[.:]", plain)[-1] == asked]
    if len(endings) == 1:
        return endings[0]
    close = get_close_matches(asked, names, n=1, cutoff=_SIMILAR)
    return names[close[0]] if close else None


def _plain(name: str) -> str:
    return name.lower().lstrip("-").replace("_", "-")
