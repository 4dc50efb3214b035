"""Translates a ds_config into the settings of a run."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from shoal.config.deepspeed.batches import batches_of
from shoal.config.deepspeed.keys import Keys, Remarks
from shoal.config.deepspeed.optimizers import optimizer_of, schedule_of
from shoal.config.kinds import AtLeast, AtMost
from shoal.config.read import Tree
from shoal.config.sections.values import NonNegative
from shoal.errors import ConfigError
from shoal.files import read_text
from shoal.printable import printable


class Translation(NamedTuple):
    """The settings of a run as a recipe has them, and what the user has to know about the rest."""

    tree: Tree
    remarks: Remarks


def read_ds_config(path: Path) -> dict[str, Any]:
    """The content of a ds_config; a ConfigError names what is wrong with the file."""
    try:
        content = json.loads(read_text(path), object_pairs_hook=_without_duplicates)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not valid JSON: it is nested too deeply") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", error.hint) from None
    except ValueError as error:  # JSON's own error; a number of 5,000 digits
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a ds_config: expected a table {{…}} at the top")
    return content


def translate(content: dict[str, Any], workers: int | None = None) -> Translation:
    """The settings that a ds_config stands for; `workers` is their number, which DeepSpeed's launcher knows.

    >>> translate({"train_batch_size": 64, "zero_optimization": {"stage": 2}}, workers=4).tree["strategy"]
    {'name': 'zero', 'stage': 2}
    """
    remarks = Remarks()
    keys = Keys(content, "", remarks)
    train, launch = batches_of(keys, workers)
    if clip_norm := keys.take("gradient_clipping", NonNegative, "train.clip_norm"):
        train["clip_norm"] = clip_norm
    optimizer = optimizer_of(keys)
    schedule = schedule_of(keys, optimizer, train)
    tree: Tree = {}
    if (precision := _precision(keys)) is not None:
        tree["precision"] = precision
    tree |= {"strategy": _strategy(keys), "optimizer": optimizer, "schedule": schedule}
    tree |= {"train": train, "launch": launch}
    if keys.take("wall_clock_breakdown", bool):
        tree["output"] = {"trace": True}
    keys.remark_on_rest()
    return Translation({name: value for name, value in tree.items() if value != {}}, remarks)


def _strategy(keys: Keys) -> Tree:
    """Stage 0 is data parallelism; stages 1 to 3 are those of `zero`."""
    if keys.holds("zero_optimization", bool):  # an old form
        return {"name": "zero", "stage": 1} if keys.take("zero_optimization", bool) else {"name": "ddp"}
    zero = keys.table("zero_optimization")
    stage = zero.take("stage", Annotated[int, AtLeast(0), AtMost(3)], "strategy.stage") or 0
    strategy: Tree = {"name": "zero", "stage": stage} if stage else {"name": "ddp"}
    if (ignores_unused := zero.take("ignore_unused_parameters", bool)) is not None:
        strategy["unused"] = "zero" if ignores_unused else "refuse"
    offload = zero.table("offload_optimizer")
    device = offload.take("device", Literal["none", "cpu", "nvme"], "strategy.offload") or "none"
    if zero.take("cpu_offload", bool) and device == "none":  # an old form
        device = "cpu"
    folder = offload.take("nvme_path", str)
    if device == "none":
        offload = offload.without_keys()
    elif not stage:
        keys.remarks.add("missing", offload.path("device"), "without ZeRO, optimizer state is not offloaded")
    elif device == "cpu":
        # A run on a CPU refuses it, and the file does not say where shoal will run.
        keys.remarks.add(
            "open",
            offload.path("device"),
            'on a GPU, set strategy.offload = "memory"; on a CPU, optimizer state is in the host\'s memory in any case',
        )
    else:
        strategy |= {"offload": "file", "offload_dir": folder or ""}
    offload.remark_on_rest()
    zero.remark_on_rest()
    return strategy


def _precision(keys: Keys) -> str | None:
    """Computation in bfloat16 for every kind of mixed precision; weights and moments stay in float32."""
    name = "bfloat16" if "bfloat16" in keys else "bf16"
    bf16, fp16, autocast = keys.table(name), keys.table("fp16"), keys.table("torch_autocast")
    is_bf16 = bf16.take("enabled", bool, "precision")
    is_fp16 = fp16.take("enabled", bool, "precision")
    if is_bf16 and is_fp16:
        raise ConfigError(
            f"{name} and fp16 are both enabled", "DeepSpeed takes one of them: disable the other."
        )
    is_autocast = autocast.take("enabled", bool, "precision")
    dtype = autocast.take("dtype", str)
    if is_fp16 or (is_autocast and dtype in ("fp16", "float16", "half", "torch.float16")):
        key = fp16.path("enabled") if is_fp16 else autocast.path("dtype")
        keys.remarks.add(
            "nearest", key, "the recipe has bf16, which has the range of float32 and needs no loss scaling"
        )
    for table, is_enabled in ((bf16, is_bf16), (fp16, is_fp16), (autocast, is_autocast)):
        (table if is_enabled else table.without_keys()).remark_on_rest()
    return "bf16" if is_bf16 or is_fp16 or is_autocast else None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"the key '{printable(twice)}' is there twice", "Remove one of them.")
    return table
