"""Optimizer and learning-rate schedule of a ds_config."""

from typing import Annotated, Literal

from shoal.config.deepspeed.keys import Keys
from shoal.config.kinds import AtLeast
from shoal.config.read import Tree
from shoal.config.sections.values import Count, Fraction, NonNegative, PositiveFloat
from shoal.printable import printable


def optimizer_of(keys: Keys) -> Tree:
    """The section optimizer; {} if the file leaves the optimizer to the program."""
    if "optimizer" not in keys:
        keys.remarks.add(
            "open",
            "optimizer",
            "not in the file, so the program made it; set optimizer.name and optimizer.lr",
        )
        return {}
    table = keys.table("optimizer")
    kind = printable(table.take("type", str, "optimizer.name") or "AdamW")
    params = table.table("params")
    optimizer = _sgd(params) if kind.lower() in ("sgd", "musgd") else _adam(kind.lower(), params)
    if kind.lower() not in ("adam", "adamw", "sgd"):
        keys.remarks.add(
            "nearest",
            table.path("type"),
            f"there is no {kind} here: the recipe has {optimizer['name']}; write your own, and pass --optimizer "
            "package.module:function",
        )
    params.remark_on_rest()
    table.remark_on_rest()
    return optimizer


def _adam(kind: str, params: Keys) -> Tree:
    """DeepSpeed's Adam decays weights as AdamW does, unless adam_w_mode is false; its default decay is 0."""
    is_coupled = params.take("adam_w_mode", bool) is False and kind == "adam"
    is_torchs = params.take("torch_adam", bool)
    optimizer: Tree = {"name": "adam" if is_coupled else "adamw"}
    optimizer |= _common(params, weight_decay=0.01 if is_torchs and not is_coupled else 0.0)
    if (betas := params.take("betas", tuple[Fraction, Fraction], "optimizer.beta1 and beta2")) is not None:
        optimizer |= {"beta1": betas[0], "beta2": betas[1]}
    if (eps := params.take("eps", PositiveFloat, "optimizer.eps")) is not None:
        optimizer["eps"] = eps
    return optimizer


def _sgd(params: Keys) -> Tree:
    optimizer: Tree = {"name": "sgd", **_common(params)}
    if (momentum := params.take("momentum", Fraction, "optimizer.momentum")) is not None:
        optimizer["momentum"] = momentum
    if params.take("nesterov", bool):
        optimizer["nesterov"] = True
    return optimizer


def _common(params: Keys, weight_decay: float = 0.0) -> Tree:
    """What all optimizers have, with the defaults of DeepSpeed's and torch's."""
    values = {
        "lr": params.take("lr", PositiveFloat, "optimizer.lr", default=1e-3),
        "weight_decay": params.take(
            "weight_decay", NonNegative, "optimizer.weight_decay", default=weight_decay
        ),
    }
    return {name: value for name, value in values.items() if value is not None}


def schedule_of(keys: Keys, optimizer: Tree, train: Tree) -> Tree:
    """The section schedule; sets the learning rate and the number of steps where the scheduler has them."""
    if "scheduler" not in keys:
        return {}
    table = keys.table("scheduler")
    kind = printable(table.take("type", str, "schedule.name") or "")
    params = table.table("params")
    schedule: Tree = {}
    if kind in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        schedule = _warmup(kind, params, optimizer, train)
        params.remark_on_rest()
    elif kind:
        keys.remarks.add(
            "missing",
            table.path("type"),
            f"there is no {kind} here: schedule.name is constant, step or cosine",
        )
    table.remark_on_rest()
    return schedule


def _warmup(kind: str, params: Keys, optimizer: Tree, train: Tree) -> Tree:
    """Linear warm-up, then a constant rate or half a cosine."""

    def nearest(key: str, sentence: str) -> None:
        params.remarks.add("nearest", params.path(key), sentence)

    schedule: Tree = {"name": "constant" if kind == "WarmupLR" else "cosine"}
    warmup = params.take("warmup_num_steps", Annotated[int, AtLeast(0)], "schedule.warmup", default=1000)
    if warmup is not None:
        schedule["warmup"] = warmup
    if params.take("warmup_type", Literal["log", "linear"], default="log") == "log":
        nearest("warmup_type", "the warm-up is linear here; DeepSpeed's default is logarithmic")
    if kind == "WarmupCosineLR":
        floor = params.take("cos_min_ratio", Fraction, "schedule.floor", default=1e-4)
        schedule |= {} if floor is None else {"floor": floor}
        if params.take("warmup_min_ratio", NonNegative, default=0.01):
            nearest("warmup_min_ratio", "the warm-up begins near 0 here")
    else:
        # These schedulers ignore the optimizer's rate.
        lr = params.take("warmup_max_lr", PositiveFloat, "optimizer.lr", default=1e-3)
        if lr is not None and optimizer.get("lr", lr) != lr:
            nearest(
                "warmup_max_lr",
                f"it is optimizer.lr, as in DeepSpeed; optimizer.params.lr ({optimizer['lr']:g}) has no effect",
            )
        optimizer |= {} if lr is None else {"lr": lr}
        if params.take("warmup_min_lr", NonNegative):
            nearest("warmup_min_lr", "the warm-up begins near 0 here")
    if kind == "WarmupLR":
        return schedule
    if kind == "WarmupDecayLR":
        params.remarks.add(
            "nearest",
            "scheduler.type",
            "the rate falls to 0 along half a cosine here, along a line in DeepSpeed",
        )
    if (steps := params.take("total_num_steps", Count, "train.steps")) is not None:
        train["steps"] = steps
        params.remarks.add(
            "open",
            params.path("total_num_steps"),
            "it is train.steps; training also ends after train.epochs: set that, too",
        )
    return schedule
