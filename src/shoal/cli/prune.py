"""`shoal prune`: prune the weights of a finished run, and fine-tune what is left."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shoal.api import TAKES
from shoal.cli import text
from shoal.cli.command import Command, Given
from shoal.cli.findings import show_interrupted
from shoal.config.flags import Flags
from shoal.config.kinds import AtLeast
from shoal.config.sections.prune import Pattern, Scope
from shoal.config.sections.values import Count, Fraction

if TYPE_CHECKING:
    from shoal.api.prune import Pruned
    from shoal.training.evaluation import Metrics
    from shoal.training.prune.one_shot import NetworkSize


@dataclass(frozen=True)
class PruneFlags(Flags):
    """What is pruned, how much, and how long the rest is trained."""

    sparsity: Fraction = 0.5
    """Fraction of the weights, or of the channels, to remove."""
    structured: bool = False
    """Remove channels, neurons and attention heads, so that the network becomes smaller; else single weights."""
    finetune: Count = 1
    """Epochs of training after pruning; pruned weights stay zero."""
    scope: Scope | None = None
    """Rank all layers together, or prune the same fraction of each. Default: global; layer with --structured."""
    layers: str = "*"
    """Layers to prune, a pattern of names: fc*, or stage?.*.conv1."""
    pattern: Pattern = ""
    """Keep N of every M consecutive inputs of an output, 2:4 for example, instead of --sparsity."""
    rewind: Annotated[int, AtLeast(0)] | None = None
    """Lottery ticket: after pruning, return the kept weights to those of this step of the run (0: the initial ones)."""
    json: bool = False
    """Print the result as one line of JSON."""
    trust_code: bool = False
    """Run your own functions (package.module:function) that the run names."""


def run(given: Given[PruneFlags]) -> int:
    """Prune a finished run, and fine-tune it: a new run folder with weights and masks, or a smaller network.

    RUN is a run folder, FILE a safetensors file of ours. The weights with the smallest absolute values become zero;
    masks.safetensors records which. With --structured, the channels with the smallest weights are removed from all
    layers that use them; model.json describes the network that is left, and model.py builds it without shoal.

    Fine-tuning uses the settings of the run, on one worker. If its learning rate was constant, it now falls along a
    cosine (unless you add --schedule constant); with --structured and Adam it begins at three times the rate. Settings
    of optimizer, schedule, data, launch and strategy, --batch-size, --clip-norm, --name and --runs-dir are those of
    `shoal train`: --lr 1e-4, --strategy ddp --workers 2.

    Start with:  shoal prune runs/NAME --sparsity 0.8
    """
    flags, path = given.flags, Path(given.words[0])
    from shoal.api.prune import prune_and_tune, prune_settings
    from shoal.config.read import read_flags
    from shoal.training.prune.one_shot import pruning_config
    from shoal.training.saved import open_run

    chosen = prune_settings(
        flags.sparsity, flags.structured, flags.scope, flags.layers, flags.pattern, flags.rewind
    )
    saved = open_run(path, trust_code=flags.trust_code)
    config = pruning_config(saved, path, chosen, flags.finetune, read_flags(given.settings))
    pruned = prune_and_tune(config, to_stderr=True, quiet=flags.json)
    result = pruned.result
    if flags.json:
        text.show(json.dumps(_record(pruned)))
    else:
        text.show("\n".join(_table(pruned, f"fine-tuned, epochs: {flags.finetune}")))
    if result.status == "completed":
        if not flags.json:
            text.next_step("shoal", "report", result.run)
        return 0
    return show_interrupted(config, result)


def _record(pruned: "Pruned") -> dict[str, Any]:
    result = pruned.result
    return {
        "before": pruned.before._asdict() | pruned.size_before._asdict(),
        "pruned": pruned.pruned._asdict() | pruned.size._asdict(),
        "fine_tuned": {"loss": result.test_loss, "accuracy": result.test_accuracy},
        "cannot_shrink": pruned.cannot_shrink,
        "run": result.run,
        "status": result.status,
        "weights_sha256": result.weights_sha256,
        "masks_sha256": result.masks_sha256,
    }


def _table(pruned: "Pruned", trained: str) -> list[str]:
    from shoal.report.plain_tables import aligned
    from shoal.training.evaluation import Metrics

    result = pruned.result
    rows = [_row("before", pruned.before, pruned.size_before), _row("pruned", pruned.pruned, pruned.size)]
    if result.test_loss is not None:
        tuned = Metrics(result.test_loss, result.test_accuracy, pruned.pruned.samples)
        rows.append(_row(trained, tuned, pruned.size))
    header = ("", "test accuracy", "test loss", "values", "bytes")
    lines = [aligned(header, rows, right=frozenset({1, 2, 3, 4}))]
    if result.masks_sha256 is not None:
        lines.append("bytes of a pruned tensor: its kept values, and one bit for each weight")
    lines += [f"cannot shrink: {part}" for part in pruned.cannot_shrink]
    return [*lines, f"run folder: {result.run}"]


def _row(name: str, metrics: "Metrics", size: "NetworkSize") -> tuple[str, str, str, str, str]:
    accuracy = "" if metrics.accuracy is None else f"{100 * metrics.accuracy:.2f} %"
    return name, accuracy, f"{metrics.loss:.4f}", f"{size.num_values:,}", f"{size.num_bytes:,}"


COMMAND = Command("prune", run, PruneFlags, words="RUN|FILE", settings=TAKES["prune"])
