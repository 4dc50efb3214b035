"""Load saved weights, of a run or from a file, and evaluate them.

Their settings are a file's: a function of the user's own that they name needs consent (`config.trust`).
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shoal import models
from shoal.comm.alone import alone
from shoal.config.read import Tree, from_tree, merge, parse_toml, read_recipe
from shoal.config.schema import RunConfig
from shoal.data.load import load
from shoal.errors import CheckpointError, ConfigError
from shoal.events.folder import RunFolder
from shoal.parallel.state import load_weights
from shoal.parallel.step import evaluate_batch
from shoal.train import checkpoint
from shoal.train.build import build_model, torch_settings
from shoal.train.evaluate import Metrics, evaluate
from shoal.train.weights import read_model


class Saved(NamedTuple):
    """Weights, the file they are from, and the settings of their run, if known."""

    weights: Mapping[str, Tensor]
    source: Path
    settings: Tree


def open_saved(path: Path, trust_code: bool = False) -> Saved:
    """The weights of a run folder (of its newest checkpoint, if it did not finish) or of a safetensors file."""
    if path.is_file():
        weights, settings = read_model(path)
        return Saved(weights, path, parse_toml(settings, path, trust_code) if settings else {})
    folder = RunFolder(path)
    if not folder.config.exists():
        raise ConfigError(f"{path} is neither a run folder nor a safetensors file")
    settings = read_recipe(str(folder.config), trust_code)
    if folder.model.exists():
        return Saved(read_model(folder.model)[0], folder.model, settings)
    newest = checkpoint.latest(folder.checkpoints)
    if newest.fallback:
        warnings.warn(newest.fallback, stacklevel=2)
    pieces = newest.pieces()
    weights = {name.removeprefix("model."): pieces[name] for name in pieces if name.startswith("model.")}
    return Saved(weights, newest.path, settings)


def config_for(saved: Saved, changes: Tree) -> RunConfig:
    """The settings of the evaluation: those of the run, with the user's changes."""
    if not saved.settings and "model" not in changes:
        raise ConfigError(f"{saved.source} does not record its model", "Pass it, for example --model lenet.")
    return from_tree(merge(saved.settings, changes))


def evaluate_saved(saved: Saved, config: RunConfig, split: str) -> Metrics:
    """Loss and accuracy of saved weights on a split of the data that the config names."""
    with torch_settings(config) as device:
        dataset = load(config.data).to(device)
        part = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}[split]
        if part is None:
            raise ConfigError(f"{config.data.name} has no validation set", "Hold one out: --validation 0.1.")
        model = build_model(config, dataset)
        try:
            load_weights(model, saved.weights)
        except CheckpointError as error:
            raise CheckpointError(
                f"{saved.source} does not fit {config.model.name}: {error.message}"
            ) from None
        model.to(device)
        loss = models.build_loss(config.loss)
        with torch.inference_mode():
            return evaluate(lambda batch: evaluate_batch(model, loss, batch), dataset, part, alone())
