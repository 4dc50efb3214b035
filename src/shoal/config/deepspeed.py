"""Translates the settings of DeepSpeed, a ds_config, into a recipe: `shoal config from-deepspeed`.

The functions below translate the keys that have a counterpart; `deepspeed.toml` says why the others have none.
"""

import json
import math
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from shoal.config.kinds import AtLeast, AtMost, check
from shoal.config.read import Tree
from shoal.config.sections.values import Count, Fraction, NonNegative, Number, PositiveFloat
from shoal.config.write import literal
from shoal.errors import ConfigError
from shoal.files import read_text
from shoal.nearest import did_you_mean
from shoal.printable import printable, shortened

Topic = Literal["open", "nearest", "missing", "needless"]
HEADINGS: dict[Topic, str] = {
    "open": "Left open, for you to set",
    "nearest": "Translated to the nearest thing",
    "missing": "Not translated",
    "needless": "No setting needed",
}
"""What remarks are about, in the order of the recipe."""
SECTIONS = ("strategy", "optimizer", "schedule", "train", "launch", "output")
WIDTH = 100
DEEPEST = 2
"""Tables inside tables whose keys are named one by one."""

TRANSLATED = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("gradient_clipping", "zero_optimization", "bf16", "fp16", "optimizer", "scheduler"),
    "wall_clock_breakdown",
)
"""The keys at the top of a file that are translated."""

OFF: dict[str, object] = {
    "gradient_predivide_factor": 1.0,
    "zero_optimization.zero_hpz_partition_size": 1,
    "zero_optimization.mics_shard_size": -1,
    "sequence_parallel_size": 1,
}
"""Values that switch something off that we do not support."""

REASONS: dict[Topic, dict[str, str]] = tomllib.loads(
    (resources.files("shoal.config") / "deepspeed.toml").read_text(encoding="utf-8")
)  # pyright: ignore[reportAssignmentType]
"""Why other keys are not translated, by topic and path: no setting is needed, or shoal cannot do it."""


@dataclass(frozen=True)
class Translation:
    """The settings of a run as a recipe has them, and a sentence for each key that needs one, by topic."""

    tree: Tree
    remarks: dict[Topic, dict[str, str]]


class _Keys:
    """A table of the file. `take` and `move` read keys; `remark_on_rest` accounts for the others."""

    def __init__(self, values: object, path: str, result: Translation) -> None:
        if not isinstance(values, dict):
            where = path or "the file"
            raise ConfigError(f"{where}: expected a table {{…}}, got {shortened(printable(repr(values)))}")
        self.values = dict(cast(dict[str, Any], values))
        self._path = path
        self._result = result

    def path(self, key: str) -> str:
        """The key with the tables that contain it."""
        shown = printable(shortened(key)).replace("\n", "\\n")
        return f"{self._path}.{shown}" if self._path else shown

    def remark(self, topic: Topic, key: str, sentence: str) -> None:
        path, remarks = self.path(key), self._result.remarks[topic]
        remarks[path] = f"{remarks[path]}; {sentence}" if path in remarks else sentence

    def take(self, key: str, kind: Any, setting: str = "", default: Any = None) -> Any:
        """The value of a key, if it is of this kind, else an error; without such a key, the default.

        None stands for `"auto"`: the program that calls DeepSpeed fills in the value, here the user sets `setting`.
        """
        value = self.values.pop(key, None)
        if value == "auto":
            what = f"set {setting}, or keep its default" if setting else "nothing to set here"
            self.remark("open" if setting else "needless", key, f'"auto"; {what}')
            return None
        return default if value is None else check(kind, value, self.path(key))

    def move(self, key: str, kind: Any, setting: str, default: Any = None) -> Any:
        """`take` a value, and make it the value of a setting."""
        value = self.take(key, kind, setting, default)
        if value is not None:
            section, _, name = setting.partition(".")
            self._result.tree[section][name] = value
        return value

    def table(self, key: str) -> "_Keys":
        """The table under a key; an empty one if there is none."""
        value = self.values.pop(key, None)
        return _Keys({} if value is None else value, self.path(key), self._result)

    def remark_on_rest(self) -> None:
        """Say of every key that was not taken why it is not in the recipe."""
        for key, value in self.values.items():
            path = self.path(key)
            if isinstance(value, dict) and self._path.count(".") < DEEPEST:
                inside = cast(dict[str, Any], value)
                if inside.get("enabled") is False or inside.get("device") == "none":
                    continue  # switched off
                if rest := {name: inside[name] for name in inside if name != "enabled"}:
                    _Keys(rest, path, self._result).remark_on_rest()
                    continue
            topic, reason = reason_of(path)
            if topic == "needless":
                # What we always do cannot be switched off.
                self.remark("missing" if value is False else "needless", key, reason)
            elif value is not None and value is not False and value != OFF.get(path):
                self.remark("missing", key, reason)


def reason_of(path: str) -> tuple[Topic, str]:
    """Why a key is not translated: the reason of the key itself, or of the table that contains it."""
    prefix = path
    while prefix:
        for topic, reasons in REASONS.items():
            if prefix in reasons:
                return topic, reasons[prefix]
        prefix = prefix.rpartition(".")[0]
    known = [*(key for reasons in REASONS.values() for key in reasons), *TRANSLATED]
    return "missing", f"not a key that we know{did_you_mean(path, known)}"


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


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"the key '{printable(twice)}' is there twice", "Remove one of them.")
    return table


def translate(content: dict[str, Any], workers: int | None = None) -> Translation:
    """The settings that a ds_config stands for; `workers` is their number, which DeepSpeed's launcher knows.

    >>> translate({"train_batch_size": 64, "zero_optimization": {"stage": 2}}, workers=4).tree["strategy"]
    {'name': 'zero', 'stage': 2}
    """
    result = Translation({section: {} for section in SECTIONS}, {topic: {} for topic in HEADINGS})
    keys, tree = _Keys(content, "", result), result.tree
    _batches(keys, tree, workers)
    if clip_norm := keys.take("gradient_clipping", NonNegative, "train.clip_norm"):
        tree["train"]["clip_norm"] = clip_norm
    _optimizer(keys, tree["optimizer"])
    _schedule(keys, tree)
    if precision := _mixed_precision(keys):
        tree["precision"] = precision
    _strategy(keys, tree["strategy"])
    if keys.take("wall_clock_breakdown", bool):
        tree["output"]["trace"] = True
    keys.remark_on_rest()
    for section in SECTIONS:
        if not tree[section]:
            del tree[section]
    return result


def _batches(keys: _Keys, tree: Tree, workers: int | None) -> None:
    """train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × workers.

    Accumulation needs no setting: a worker's share of a batch goes through the model in micro-batches.
    """
    batch_key, micro_key, steps_key = TRANSLATED[:3]
    if batch_key not in keys.values and micro_key not in keys.values:
        keys.remark("open", batch_key, "not in the file; set train.batch_size, or keep its default")
    batch = keys.take(batch_key, Count, "train.batch_size")
    micro = keys.take(micro_key, Count, "train.micro_batch")
    steps = keys.take(steps_key, Count, "train.micro_batch")
    if batch is not None:
        factors = {micro_key: micro, steps_key: steps, "workers": workers}
        known = {name: factor for name, factor in factors.items() if factor is not None}
        product, are_all = math.prod(known.values()), len(known) == len(factors)
        if batch % product or (are_all and batch != product):
            shown = " × ".join(f"{name} ({factor})" for name, factor in known.items())
            raise ConfigError(
                f"{batch_key} ({batch}) {'is not' if are_all else 'is not a multiple of'} {shown}"
                f"{f' = {product}' if len(known) > 1 else ''}",
                f"DeepSpeed needs {batch_key} = {micro_key} × {steps_key} × workers: correct one of them.",
            )
        if workers is None and micro is not None and steps is not None:
            workers = batch // product
    consequence = ""
    if batch is None and micro is not None:
        batch = micro * (steps or 1) * (workers or 1)
        consequence = f", and train.batch_size is that of 1 worker ({batch})"
    elif batch is not None and micro is None and steps is not None:
        micro = None if workers is None else batch // (steps * workers)
        consequence = f", and train.micro_batch is {batch} / {steps} / workers: set it"
    if batch is not None:
        tree["train"]["batch_size"] = batch
    if micro is not None:
        tree["train"]["micro_batch"] = micro
    if workers is None:
        why = f"their number is not in the file{consequence}; give it to this command: --workers N"
        keys.remark("open", "workers", why)
    else:
        tree["launch"]["workers"] = workers


def _optimizer(keys: _Keys, optimizer: Tree) -> None:
    """DeepSpeed's Adam decays weights as AdamW does, unless adam_w_mode is false; its default decay is 0."""
    if "optimizer" not in keys.values:
        why = "not in the file, so the program made it; set optimizer.name and optimizer.lr"
        keys.remark("open", "optimizer", why)
        return
    table = keys.table("optimizer")
    given = printable(table.take("type", str, "optimizer.name") or "AdamW")
    params, kind, decay = table.table("params"), given.lower(), 0.0
    optimizer["name"] = "sgd" if kind in ("sgd", "musgd") else "adamw"
    if optimizer["name"] == "adamw":
        if params.take("adam_w_mode", bool) is False and kind == "adam":
            optimizer["name"] = "adam"
        if params.take("torch_adam", bool) and optimizer["name"] == "adamw":
            decay = 0.01
    params.move("lr", PositiveFloat, "optimizer.lr", default=1e-3)
    params.move("weight_decay", NonNegative, "optimizer.weight_decay", default=decay)
    if optimizer["name"] == "sgd":
        params.move("momentum", Fraction, "optimizer.momentum")
        if params.take("nesterov", bool):
            optimizer["nesterov"] = True
    else:
        betas = params.take("betas", tuple[Fraction, Fraction], "optimizer.beta1 and beta2")
        optimizer |= {} if betas is None else {"beta1": betas[0], "beta2": betas[1]}
        params.move("eps", PositiveFloat, "optimizer.eps")
    if kind not in ("adam", "adamw", "sgd"):
        fix = "write your own, and pass --optimizer package.module:function"
        table.remark(
            "nearest", "type", f"there is no {given} here: the recipe has {optimizer['name']}; {fix}"
        )
    params.remark_on_rest()
    table.remark_on_rest()


def _schedule(keys: _Keys, tree: Tree) -> None:
    """A linear warm-up, then a constant rate or half a cosine; other schedulers are not translated."""
    table = keys.table("scheduler")
    kind = printable(table.take("type", str, "schedule.name") or "")
    params = table.table("params")
    if kind in ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR"):
        tree["schedule"]["name"] = "constant" if kind == "WarmupLR" else "cosine"
        params.move("warmup_num_steps", Number, "schedule.warmup", default=1000)
        if params.take("warmup_type", Literal["log", "linear"], default="log") == "log":
            why = "the warm-up is linear here; DeepSpeed's default is logarithmic"
            params.remark("nearest", "warmup_type", why)
        begin, begins_at = "warmup_min_lr", 0.0
        if kind == "WarmupCosineLR":
            params.move("cos_min_ratio", Fraction, "schedule.floor", default=1e-4)
            begin, begins_at = "warmup_min_ratio", 0.01
        else:  # these schedulers ignore the optimizer's rate
            before = tree["optimizer"].get("lr")
            lr = params.move("warmup_max_lr", PositiveFloat, "optimizer.lr", default=1e-3)
            if None not in (before, lr) and before != lr:
                why = f"it is optimizer.lr, as in DeepSpeed; optimizer.params.lr ({before:g}) has no effect"
                params.remark("nearest", "warmup_max_lr", why)
        if params.take(begin, NonNegative, default=begins_at):
            params.remark("nearest", begin, "the warm-up begins near 0 here")
        if kind == "WarmupDecayLR":
            why = "the rate falls to 0 along half a cosine here, along a line in DeepSpeed"
            table.remark("nearest", "type", why)
        if kind != "WarmupLR" and params.move("total_num_steps", Count, "train.steps") is not None:
            why = "it is train.steps; training also ends after train.epochs: set that, too"
            params.remark("open", "total_num_steps", why)
        params.remark_on_rest()
    elif kind:
        why = f"there is no {kind} here: schedule.name is constant, step or cosine"
        table.remark("missing", "type", why)
    table.remark_on_rest()


def _mixed_precision(keys: _Keys) -> str:
    """The format of computation, empty for float32; weights and moments stay in float32."""
    name = "bfloat16" if "bfloat16" in keys.values else "bf16"
    bf16, fp16, autocast = keys.table(name), keys.table("fp16"), keys.table("torch_autocast")
    is_bf16 = bf16.take("enabled", bool, "precision")
    is_fp16 = fp16.take("enabled", bool, "precision")
    if is_bf16 and is_fp16:
        raise ConfigError(
            f"{name} and fp16 are both enabled", "DeepSpeed takes one of them: disable the other."
        )
    is_autocast = autocast.take("enabled", bool, "precision")
    is_half = is_autocast and autocast.values.get("dtype") in ("fp16", "float16", "half", "torch.float16")
    autocast.take("dtype", str)
    for table, is_enabled in ((bf16, is_bf16), (fp16, is_fp16), (autocast, is_autocast)):
        if is_enabled:
            table.remark_on_rest()
    if is_fp16 or (is_autocast and is_half):
        return "fp16"
    return "bf16" if is_bf16 or is_autocast else ""


def _strategy(keys: _Keys, strategy: Tree) -> None:
    """Stage 0 is data parallelism; stages 1 to 3 are the stages of `zero`."""
    if isinstance(keys.values.get("zero_optimization"), bool):  # an old form
        strategy |= {"name": "zero", "stage": 1} if keys.values.pop("zero_optimization") else {"name": "ddp"}
        return
    zero = keys.table("zero_optimization")
    stage = zero.take("stage", Annotated[int, AtLeast(0), AtMost(3)], "strategy.stage") or 0
    strategy |= {"name": "zero", "stage": stage} if stage else {"name": "ddp"}
    if (ignores_unused := zero.take("ignore_unused_parameters", bool)) is not None:
        strategy["unused"] = "zero" if ignores_unused else "refuse"
    offload = zero.table("offload_optimizer")
    device = offload.take("device", Literal["none", "cpu", "nvme"], "strategy.offload") or "none"
    if zero.take("cpu_offload", bool) and device == "none":  # an old form
        device = "cpu"
    folder = offload.take("nvme_path", str)
    if device != "none" and not stage:
        offload.remark("missing", "device", "without ZeRO, optimizer state is not offloaded")
    elif device == "cpu":
        # A run on a CPU refuses it, and the file does not say where shoal will run.
        why = (
            'set strategy.offload = "memory"; on a CPU, optimizer state is in the host\'s memory in any case'
        )
        offload.remark("open", "device", f"on a GPU, {why}")
    elif device == "nvme":
        strategy |= {"offload": "file", "offload_dir": folder or ""}
    if device != "none":
        offload.remark_on_rest()
    zero.remark_on_rest()


def as_recipe(translation: Translation, source: str) -> str:
    """The TOML text of a recipe that `shoal train` takes as it is; comments list what is not in it."""
    lines = [
        f"# Translated from {source} by `shoal config from-deepspeed`.",
        "# A ds_config names neither data nor model: add [data] and [model], or pass --data and --model.",
        "",
    ]
    sections = dict(translation.tree)
    if "precision" in sections:
        lines += [f"precision = {literal(sections.pop('precision'))}", ""]
    for name, section in sections.items():
        lines += [f"[{name}]", *(f"{key} = {literal(value)}" for key, value in section.items()), ""]
    remarks = remark_lines(translation)
    return "\n".join([*lines, *(f"# {line}".rstrip() for line in remarks), *([""] if remarks else [])])


def remark_lines(translation: Translation, width: int = WIDTH) -> list[str]:
    """What the user has to know about the keys that are not in the recipe, in lines of text."""
    lines: list[str] = []
    for topic, heading in HEADINGS.items():
        if remarks := translation.remarks[topic]:
            lines += [*([""] if lines else []), f"{heading}:"]
            for text in _grouped(remarks):
                lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="      ")
    return lines


def _grouped(remarks: Mapping[str, str]) -> Iterator[str]:
    """`table.{key, key}: sentence`, for keys of one table with the same sentence."""
    groups: dict[tuple[str, str], list[str]] = {}
    for key, sentence in remarks.items():
        table, dot, name = key.rpartition(".")
        groups.setdefault((table + dot, sentence), []).append(name)
    for (table, sentence), names in groups.items():
        keys = names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
        yield f"{table}{keys}: {sentence}"
