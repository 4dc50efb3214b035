"""What each technique of `--memory` can be combined with: one table, and the check that reads it.

::

                        single naive ddp  onecopy zero  local server dp   rpc   pipeline tensor  engines
    checkpoint          yes    yes   yes  yes     1–3   yes   yes    –    –     –        –       torch
    offload             yes    yes   yes  yes     1–3   yes   yes    –    –     –        –       torch
    state_bits          –      –     –    –       –     –     –      –    –     –        –       –
    step_in_backward    –      –     –    –       –     –     –      –    –     –        –       –
    parameters          –      –     –    –       –     –     –      –    –     –        –       –
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shoal.config.checks.run_settings import RunSettings
from shoal.config.sections.memory import MemoryConfig
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
    layouts: tuple[str, ...] = ("whole",)
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
    # The optimizer's side is not built yet: nothing supports it.
    "state_bits": Combines(
        lambda memory: f"--memory.state_bits {memory.state_bits}" if memory.state_bits != 32 else "", syncs=()
    ),
    "step_in_backward": Combines(
        lambda memory: "--memory.step_in_backward" if memory.step_in_backward else "", syncs=()
    ),
    "parameters": Combines(
        lambda memory: f"--memory.parameters {memory.parameters}" if memory.parameters != "float32" else "",
        syncs=(),
    ),
}
"""By the field of `MemoryConfig`."""


def check_memory_settings(config: RunSettings, layout: str) -> None:
    """Refuse techniques that the run's strategy, engine or other settings do not support."""
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
