"""Prune a finished run: the settings of the run that fine-tunes it, and what pruning alone does to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from shoal.config.read import Tree, from_tree, merge
from shoal.config.schema import RunConfig
from shoal.config.sections.optimizer import AdamConfig, AdamWConfig
from shoal.config.sections.prune import WeightPruneConfig
from shoal.data.load import load
from shoal.errors import ConfigError
from shoal.prune.channels.choose import fixed_parts
from shoal.prune.masks import WeightMasks
from shoal.training.build import build_model, few_inputs, torch_settings
from shoal.training.evaluation import Metrics
from shoal.training.prune.pruning import load_start, prepare
from shoal.training.reopen import evaluate_model
from shoal.training.saved import Saved, config_for, open_saved

NOT_INHERITED = (
    "sync",
    "mesh",
    "pipeline",
    "tensor",
    "exchange",
    "partition",
    "launch",
    "prune",
    "checkpoint",
)
"""Sections of the trained run that say on which workers it ran; fine-tuning runs on one unless the user asks."""
MEMORY_NOT_INHERITED = ("budget", "step_in_backward", "parameters")
"""Settings of memory that pruning does not support, and the budget, which was for another run."""
RATE_OF_CHANNELS = 3.0
"""How much higher Adam's learning rate begins where channels were removed: a network that has lost half of them has to
learn anew, and the run's own rate does not bring it there in an epoch. Chosen on a part of the training set (lenet,
digits, three seeds: 2 recovers the accuracy on one of them, 3 and 5 on all)."""


class NetworkSize(NamedTuple):
    """The size of a network's weights and buffers."""

    num_values: int
    """Values that are stored: pruned weights are not counted."""
    num_bytes: int
    """Their bytes; a tensor with pruned weights counts its kept values, and one bit for each weight."""


class PrunedOnce(NamedTuple):
    """A network before and after pruning, both without fine-tuning."""

    before: Metrics
    size_before: NetworkSize
    after: Metrics
    size_after: NetworkSize
    fixed: list[str]
    """Parts that cannot shrink, and why; for structured pruning."""


def pruning_config(saved: Saved, path: Path, prune: dict[str, Any], epochs: int, changes: Tree) -> RunConfig:
    """The run that starts from saved weights, prunes them before the first step, and trains on for some epochs.

    A constant learning rate would leave the last steps as coarse as the first: it falls along a cosine instead, for
    Adam without channels from a higher one (`RATE_OF_CHANNELS`). What the user sets stays.
    """
    trained = config_for(saved, {})
    inherited = {key: value for key, value in saved.settings.items() if key not in NOT_INHERITED}
    train: Tree = {**inherited.get("train", {}), "start": str(path), "epochs": epochs}
    train.pop("steps", None)
    if memory := inherited.get("memory"):
        inherited["memory"] = {key: value for key, value in memory.items() if key not in MEMORY_NOT_INHERITED}
    if trained.schedule.name == "constant":
        inherited["schedule"] = {"name": "cosine"}
        optimizer = trained.optimizer
        if (
            prune["name"] == "channels"
            and "schedule" not in changes
            and isinstance(optimizer, AdamConfig | AdamWConfig)
        ):
            given = inherited.get("optimizer", {})
            own = given if isinstance(given, dict) else {}  # a name alone is a string
            inherited["optimizer"] = {**own, "name": optimizer.name, "lr": RATE_OF_CHANNELS * optimizer.lr}
    folder = path.parent if path.is_dir() else Path(trained.output.dir)
    name = path.name if path.is_dir() else path.stem
    output = {**inherited.get("output", {}), "dir": str(folder), "name": _free_name(folder, f"{name}-pruned")}
    return from_tree(merge({**inherited, "train": train, "output": output, "prune": prune}, changes))


def prune_once(config: RunConfig) -> PrunedOnce:
    """Prune as the run of `pruning_config` does before its first step; measure before and after."""
    with torch_settings(config) as device:
        dataset = load(config.data).to(device)
        model = build_model(config, dataset)  # refuses nested samples
        sample = few_inputs(dataset).cpu()
        load_start(model, config.train.start)
        fixed = fixed_parts(model) if config.prune.name == "channels" else []
        kept_before = open_saved(Path(config.train.start)).masks
        size_before = size_of(model, kept_before)
        before = evaluate_model(model.to(device), config, dataset, "test")
        model = build_model(config, dataset)
        prepare(model, config, sample)
        kept: dict[str, Tensor] = {}
        if isinstance(config.prune, WeightPruneConfig):
            trained = {name: param for name, param in model.named_parameters() if param.requires_grad}
            masks = WeightMasks(trained, config.prune)
            masks.prune()
            kept = masks.kept
        _refuse_revival(config, kept_before, kept)
        after = evaluate_model(model.to(device), config, dataset, "test")
        return PrunedOnce(before, size_before, after, size_of(model, kept), fixed)


def _refuse_revival(config: RunConfig, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    """Refuse to train weights again that an earlier pruning has set to zero."""
    pruned = sum(int((~kept).sum()) for kept in before.values())
    if not pruned:
        return
    start = f"{config.train.start} is pruned to a sparsity of {pruned / sum(map(Tensor.numel, before.values())):.3g}"
    if not isinstance(config.prune, WeightPruneConfig):
        raise ConfigError(
            f"{start}: without some channels, the weights that are left would be trained again",
            "Remove channels first, and prune single weights of the smaller network.",
        )
    revived = sum(
        int((after[name] & ~kept if name in after else ~kept).sum()) for name, kept in before.items()
    )
    if revived:
        raise ConfigError(
            f"{start}: sparsity {config.prune.sparsity:g} of layers '{config.prune.layers}' would train {revived:,} of "
            "the pruned weights again",
            "Use a higher --sparsity and all layers, or prune the run from which it was made.",
        )


def size_of(model: nn.Module, kept: Mapping[str, Tensor]) -> NetworkSize:
    """The size of a model, less what the masks prune. Weights that several layers share count once.

    >>> import torch
    >>> size_of(nn.Linear(8, 2), {"weight": torch.arange(16).view(2, 8) < 4})
    NetworkSize(num_values=6, num_bytes=26)
    """
    num_values = num_bytes = 0
    names: dict[tuple[int, int], list[str]] = {}
    state = model.state_dict()
    for name, tensor in state.items():
        names.setdefault((tensor.data_ptr(), tensor.numel()), []).append(name)
    for shared in names.values():
        tensor = state[shared[0]]
        # Masks are recorded under one of the names.
        mask = next((kept[name] for name in shared if name in kept), None)
        count = tensor.numel() if mask is None else int(mask.sum())
        num_values += count
        num_bytes += count * tensor.element_size()
        if count < tensor.numel():
            num_bytes += -(-tensor.numel() // 8)
    return NetworkSize(num_values, num_bytes)


def _free_name(folder: Path, name: str) -> str:
    number = 1
    while (folder / (name if number == 1 else f"{name}-{number}")).exists():
        number += 1
    return name if number == 1 else f"{name}-{number}"
