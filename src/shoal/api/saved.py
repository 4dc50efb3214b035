"""`shoal.evaluate` and `shoal.load`: saved weights, measured on data or as the trained model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Unpack

from torch import nn

from shoal.api.keywords import EvaluateSettings
from shoal.api.settings import MODULE, path_of_run, tree_for
from shoal.config.arguments import checks_arguments
from shoal.config.read import Tree
from shoal.data.load import load as load_data
from shoal.errors import ConfigError
from shoal.training.build import torch_settings
from shoal.training.evaluation import Metrics
from shoal.training.reopen import evaluate_saved, saved_model
from shoal.training.result import Result
from shoal.training.saved import config_for, open_run


@checks_arguments
def evaluate(
    run: str | Path | Result,
    *,
    split: Literal["test", "train", "validation"] = "test",
    checkpoint: str = "",
    trust_code: bool = False,
    **settings: Unpack[EvaluateSettings],
) -> Metrics:
    """Loss, accuracy and metrics of a run, or of a weights file, as `shoal evaluate` measures them.

        shoal.evaluate("runs/NAME", metrics=["top5"]).accuracy

    `run` is a result, a run folder or a safetensors file; `checkpoint` is best, last or a step. It takes the
    settings of data, model and loss, and `metrics`, `device` and `threads`.
    """
    saved = open_run(path_of_run(run), checkpoint, trust_code)
    changes = tree_for("evaluate", settings)
    _check_is_named({**saved.settings, **changes}, saved.source, ("model", "data", "loss"))
    return evaluate_saved(saved, config_for(saved, changes), split)


@checks_arguments
def load(
    run: str | Path | Result,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    *,
    checkpoint: str = "",
    trust_code: bool = False,
) -> nn.Module:
    """The trained model of a run, or of a weights file: a torch module on the CPU, in evaluation mode.

        model = shoal.load("runs/NAME", checkpoint="best")

    The run's settings name the model. A model that a program gave to `shoal.fit` has no name: give it, or a function
    that makes it, as `model`.
    """
    saved = open_run(path_of_run(run), checkpoint, trust_code)
    if model is not None:
        made = model if isinstance(model, nn.Module) else model()
        saved.load_into(made)
        return made.eval()
    _check_is_named(saved.settings, saved.source, ("model", "data"))
    if not saved.settings:
        raise ConfigError(f"{saved.source} does not record its model", "Give it: shoal.load(file, model).")
    config = config_for(saved, {"device": "cpu"})
    with torch_settings(config):
        return saved_model(saved, config, load_data(config.data)).eval()


def _check_is_named(settings: Tree, source: Path, needed: Sequence[str]) -> None:
    """Refuse a run of `shoal.fit`: only the program that made it has its objects."""
    for section in needed:
        chosen = settings.get(section, "")
        name = chosen.get("name", "") if isinstance(chosen, dict) else chosen
        if str(name).startswith(f"{MODULE}:"):
            raise ConfigError(
                f"the {section} of {source} was an object of a program that called shoal.fit",
                "Give the model: shoal.load(run, model) puts the weights into it.",
            )
