"""Evaluate saved weights, of a run or from a file.

Their settings are a file's: a function of the user's own that they name needs consent (`config.custom`).
"""

import torch
from torch import nn

from shoal import models
from shoal.comm.alone import alone
from shoal.config.schema import RunConfig
from shoal.data.dataset import DataSet
from shoal.data.load import load
from shoal.errors import CheckpointError, ConfigError
from shoal.models.losses import CountedLoss
from shoal.strategies.gradient_engine import evaluate_batch
from shoal.training.build import build_measures, build_model, torch_settings
from shoal.training.evaluation import Metrics, evaluate
from shoal.training.saved import Saved


def evaluate_saved(saved: Saved, config: RunConfig, split: str) -> Metrics:
    """Loss, accuracy and metrics of saved weights on a split of the data that the config names."""
    with torch_settings(config) as device:
        dataset = load(config.data).to(device)
        return evaluate_model(saved_model(saved, config, dataset).to(device), config, dataset, split)


def saved_model(saved: Saved, config: RunConfig, dataset: DataSet) -> nn.Module:
    """The model that the config names, with the saved weights."""
    model = build_model(config, dataset)
    try:
        saved.load_into(model)
    except CheckpointError as error:
        raise CheckpointError(f"{saved.source} does not fit {config.model.name}: {error.message}") from None
    return model


def evaluate_model(model: nn.Module, config: RunConfig, dataset: DataSet, split: str) -> Metrics:
    """Loss, accuracy and metrics of a model on a split of a data set."""
    part = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}[split]
    if part is None:
        raise ConfigError(f"{config.data.name} has no validation set", "Hold one out: --validation 0.1.")
    loss, measures = CountedLoss(models.build_loss(config.loss)), build_measures(config, model, dataset)
    with torch.inference_mode():
        return evaluate(
            lambda batch: evaluate_batch(model, loss, batch, measures), dataset, part, alone(), measures
        )
