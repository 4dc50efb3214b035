"""What each technique of `--memory` can be combined with: one table, and the check that reads it.

`return_freed` is not in it: a setting of the C library, which every run on a CPU supports.

::

                        single naive ddp  onecopy zero  local server dp   rpc   pipeline tensor  engines
    checkpoint          yes    yes   yes  yes     1–3   yes   yes    –    –     –        yes     torch
    offload             yes    yes   yes  yes     1–3   yes   yes    –    –     yes      yes     torch
    state_bits          yes    yes   yes  yes     1–3   –     –      –    –     yes      –       all
    step_in_backward    yes    –     yes  –       –     –     –      –    –     –        –       torch
    parameters          yes    –     yes  –       1–2   –     –      –    –     –        –       torch
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shoal.config.checks.prune import STATELESS
from shoal.config.checks.run_settings import RunSettings
from shoal.config.kinds import either
from shoal.config.sections.memory import MemoryConfig
from shoal.config.sections.sync import ZeroConfig
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError

TORCH = ("torch",)
EVERY_SYNC = ("none", "naive", "ddp", "onecopy", "zero", "local", "server")
"""The syncs whose workers compute forward and backward of a share in one place."""


@dataclass(frozen=True)
class Combines:
    """What one technique can be combined with. A run that sets its flag is checked against this."""

    flag: Callable[[MemoryConfig], str]
    """The flag as the user wrote it; empty if the technique is at its neutral setting."""
    syncs: tuple[str, ...] = EVERY_SYNC
    zero_stages: tuple[int, ...] = (1, 2, 3)
    layouts: tuple[str, ...] = ("whole", "tensor")
    engines: tuple[str, ...] = TORCH
    refuses: tuple["Refusal", ...] = ()
    """Single settings that it does not support."""
    why: Mapping[str, str] = field(default_factory=dict[str, str])
    """Reasons, by the name of a sync, layout or engine."""


@dataclass(frozen=True)
class Refusal:
    """One setting that a technique does not support."""

    found: Callable[[RunSettings], str]
    """The setting as the user wrote it; empty if the run does not have it."""
    reason: str
    fix: str


def _sync_batchnorm(config: RunSettings) -> str:
    return "--sync.sync_batchnorm" if getattr(config.sync, "sync_batchnorm", False) else ""


def _accumulation(config: RunSettings) -> str:
    """The micro-batch, if a worker's share of a batch has several parts."""
    train, batch_size = config.train, config.train.batch_size
    if train.reduction == "invariant":
        return "--reduction invariant"
    if not isinstance(batch_size, int):
        return ""  # the size of the training set is not known here; several parts are exact, and save less
    share = -(-batch_size // config.launch.workers)
    return f"--micro-batch {train.micro_batch} with {share} samples of each worker" * (
        train.micro_batch < share
    )


OWN_OPTIMIZER = Refusal(
    lambda config: f"optimizer {config.optimizer.name}" if isinstance(config.optimizer, Custom) else "",
    "shoal does not know the state of an optimizer of your own",
    "Use --optimizer sgd, adam or adamw.",
)
STATE_OFFLOAD = Refusal(
    lambda config: (
        f"--strategy.offload {config.sync.offload}"
        if isinstance(config.sync, ZeroConfig) and config.sync.offload != "none"
        else ""
    ),
    "offloaded state is float32",
    "Leave one of the two out.",
)

TECHNIQUES: dict[str, Combines] = {
    "checkpoint": Combines(
        lambda memory: f"--memory.checkpoint {memory.checkpoint}" if memory.checkpoint else "",
        why={"pipeline": "a stage recomputes with --pipeline.recompute"},
        refuses=(
            Refusal(
                _sync_batchnorm,
                "a recomputed layer would communicate a second time",
                "Use --memory.offload file, or leave --sync.sync_batchnorm out.",
            ),
        ),
    ),
    "offload": Combines(
        lambda memory: f"--memory.offload {memory.offload}" if memory.offload != "none" else "",
        layouts=("whole", "tensor", "pipeline", "pipeline+tensor"),
        refuses=(
            Refusal(
                lambda config: (
                    "--device cpu" if config.memory.offload == "host" and config.device == "cpu" else ""
                ),
                "on a CPU activations are in the host's memory already",
                "Use --memory.offload file.",
            ),
        ),
    ),
    "state_bits": Combines(
        lambda memory: f"--memory.state_bits {memory.state_bits}" if memory.state_bits != 32 else "",
        syncs=("none", "naive", "ddp", "onecopy", "zero"),
        layouts=("whole", "pipeline"),
        engines=("torch", "tape", "static"),
        why={"local": "it averages state as float32", "server": "a server's state is sent as float32"},
        refuses=(
            OWN_OPTIMIZER,
            Refusal(
                lambda config: (
                    f"optimizer {config.optimizer.name} without momentum"
                    if config.optimizer.name in ("gd", "sgd")
                    and not getattr(config.optimizer, "momentum", 0.0)
                    else ""
                ),
                "it has no state for each element",
                "Use --optimizer sgd --momentum 0.9 or adam, or leave --memory.state_bits out.",
            ),
            Refusal(
                lambda config: (
                    "--aggregate parameters"
                    if getattr(config.sync, "aggregate", "gradients") == "parameters"
                    else ""
                ),
                "it averages state as float32",
                "Use --aggregate gradients.",
            ),
            STATE_OFFLOAD,
        ),
    ),
    "step_in_backward": Combines(
        lambda memory: "--memory.step_in_backward" if memory.step_in_backward else "",
        syncs=("none", "ddp"),
        layouts=("whole",),
        why={
            "naive": "it exchanges gradients after backward",
            "zero": "its stages 2 and 3 free gradients in backward already",
            "onecopy": "other workers still compute with the one copy of the weights",
        },
        refuses=(
            OWN_OPTIMIZER,
            Refusal(
                lambda config: (
                    f"--clip-norm {config.train.clip_norm:g}" if config.train.clip_norm is not None else ""
                ),
                "the norm of all gradients is known only after the first updates",
                "Leave one of the two out.",
            ),
            Refusal(
                lambda config: "--train.on_nonfinite skip" if config.train.on_nonfinite == "skip" else "",
                "some parameters have been updated before a bad gradient is found",
                "Use --train.on_nonfinite stop.",
            ),
            Refusal(
                _accumulation,
                "gradients that are added up over several parts cannot be freed",
                "Use a --micro-batch as large as a worker's share of the batch.",
            ),
            Refusal(
                lambda config: f"--prune {config.prune.name}" if config.prune.name != "none" else "",
                "masks are applied to all gradients before the update",
                "Leave one of the two out.",
            ),
            Refusal(
                lambda config: f"--fault {config.launch.fault[0]}" if config.launch.fault else "",
                "a fault changes weights around backward",
                "Leave one of the two out.",
            ),
            Refusal(
                lambda config: (
                    f"--exchange {config.exchange.name}" if config.exchange.name not in STATELESS else ""
                ),
                "it keeps state for buckets that it plans itself",
                f"Use --exchange {either(STATELESS)}.",
            ),
            Refusal(
                lambda config: (
                    "--strategy.unused zero" if getattr(config.sync, "unused", "refuse") == "zero" else ""
                ),
                "which parameters have no gradient on any worker is known only after the first updates",
                "Use --strategy.unused refuse.",
            ),
        ),
    ),
    "parameters": Combines(
        lambda memory: f"--memory.parameters {memory.parameters}" if memory.parameters != "float32" else "",
        syncs=("none", "ddp", "zero"),
        zero_stages=(1, 2),
        layouts=("whole",),
        refuses=(
            OWN_OPTIMIZER,
            STATE_OFFLOAD,
            Refusal(
                lambda config: f"--precision {config.precision}" if config.precision != "bf16" else "",
                "products of weights in bfloat16 are computed in bfloat16",
                "Use --precision bf16.",
            ),
            Refusal(
                lambda config: "--reduction invariant" if config.train.reduction == "invariant" else "",
                "sums over leaves are float32",
                "Leave one of the two out.",
            ),
            Refusal(
                lambda config: f"--prune {config.prune.name}" if config.prune.name != "none" else "",
                "scores of weights are float32",
                "Leave one of the two out.",
            ),
        ),
    ),
}
"""By the field of `MemoryConfig`."""


def check_memory_settings(config: RunSettings, layout: str) -> None:
    """Refuse techniques that the run's strategy, engine or other settings do not support."""
    if config.memory.budget is not None and config.launch.launcher == "threads" and config.launch.workers > 1:
        raise ConfigError(
            "--memory.budget does not support thread workers: they share one process, whose memory cannot be divided "
            "among them",
            "Use --launcher processes.",
        )
    if config.memory.return_freed and config.device == "cuda":
        raise ConfigError(
            "--memory.return_freed does not support --device cuda: it is a setting of the C library, and torch has an "
            "allocator of its own for a GPU",
            "Use --device cpu, or leave --memory.return_freed out.",
        )
    for technique in TECHNIQUES.values():
        flag = technique.flag(config.memory)
        if flag:
            _check(config, layout, flag, technique)


def _check(config: RunSettings, layout: str, flag: str, technique: Combines) -> None:
    name = flag.split()[0]
    sync: str = getattr(config.sync, "name", "none")
    if sync not in technique.syncs or layout not in technique.layouts:
        reason = technique.why.get(sync) or next(
            (technique.why[part] for part in layout.split("+") if part in technique.why), ""
        )
        syncs = ", ".join("single" if each == "none" else each for each in technique.syncs)
        raise ConfigError(
            f"strategy {config.strategy} does not support {flag}" + f": {reason}" * bool(reason),
            f"Use --strategy {syncs}; or leave {name} out." if syncs else f"Leave {name} out.",
        )
    stage: int | None = getattr(config.sync, "stage", None)
    if stage is not None and stage not in technique.zero_stages:
        raise ConfigError(
            f"stage {stage} of strategy zero does not support {flag}",
            f"Use --strategy.stage {technique.zero_stages[0]}, or leave {name} out."
            if technique.zero_stages
            else f"Leave {name} out.",
        )
    if config.engine not in technique.engines:
        reason = technique.why.get(config.engine, "")
        raise ConfigError(
            f"--engine {config.engine} does not support {flag}" + f": {reason}" * bool(reason),
            f"Use --engine {technique.engines[0]}, or leave {name} out.",
        )
    for refusal in technique.refuses:
        if found := refusal.found(config):
            raise ConfigError(f"{flag} does not support {found}: {refusal.reason}", refusal.fix)
