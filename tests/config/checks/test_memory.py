"""What the techniques of `--memory` are refused with: one sentence, and the fix."""

import pytest

from shoal.config.checks.memory import TECHNIQUES
from shoal.config.kinds import kinds_of
from shoal.config.read import read
from shoal.config.schema import MemoryConfig, RunConfig
from shoal.errors import ConfigError


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            "--memory.checkpoint 2 --strategy dp --workers 2",
            "strategy dp does not support --memory.checkpoint 2",
        ),
        ("--memory.checkpoint 2 --mesh pipeline=2", "a stage recomputes with --pipeline.recompute"),
        ("--memory.checkpoint 1 --engine tape", "--engine tape does not support --memory.checkpoint 1"),
        ("--memory.checkpoint -1", "expected an integer ≥ 0"),
        ("--memory.offload host --device cpu", "activations are in the host's memory already"),
        ("--memory.offload disk", "unknown memory.offload 'disk'"),
        ("--memory.offload_dir /tmp", "has no effect with --memory.offload none"),
        ("--memory.state_bits 16", "expected 32 or 8, got 16"),
        ("--memory.state_bits 8 --optimizer sgd", "optimizer sgd without momentum: it has no state"),
        ("--memory.state_bits 8 --optimizer gd", "optimizer gd without momentum: it has no state"),
        (
            "--memory.state_bits 8 --optimizer torch.optim:Adagrad",
            "does not support optimizer torch.optim:Adagrad: shoal does not know the state",
        ),
        (
            "--memory.state_bits 8 --strategy local --workers 2",
            "strategy local does not support --memory.state_bits 8",
        ),
        (
            "--memory.state_bits 8 --strategy zero --workers 2 --strategy.offload file",
            "does not support --strategy.offload file",
        ),
        *(
            (f"{flag} --strategy tensor --workers 2", f"strategy tensor does not support {flag}")
            for flag in ("--memory.step_in_backward", "--memory.parameters bf16")
        ),
        (
            "--memory.step_in_backward --clip-norm 1",
            "does not support --clip-norm 1: the norm of all gradients",
        ),
        ("--memory.step_in_backward --train.on_nonfinite skip", "does not support --train.on_nonfinite skip"),
        (
            "--memory.step_in_backward --batch-size 64 --micro-batch 16",
            "does not support --micro-batch 16 with 64 samples of each worker",
        ),
        (
            "--memory.step_in_backward --strategy zero --workers 2",
            "its stages 2 and 3 free gradients in backward already",
        ),
        (
            "--memory.step_in_backward --prune magnitude --prune.sparsity 0.5",
            "does not support --prune magnitude",
        ),
        (
            "--memory.step_in_backward --strategy ddp --workers 2 --exchange compressed:topk",
            "does not support --exchange compressed",
        ),
        (
            "--memory.parameters bf16 --strategy zero --workers 2 --strategy.stage 3",
            "stage 3 of strategy zero does not support --memory.parameters bf16",
        ),
        ("--memory.parameters bf16 --precision tf32", "does not support --precision tf32"),
        ("--memory.parameters bf16 --engine tape", "--engine tape does not support --memory.parameters bf16"),
        ("--memory.budget 200", "expected text of the form 200MB, 1.5GiB or none, got '200'"),
        ("--memory.budget -5MB", "expected text of the form 200MB, 1.5GiB or none, got '-5MB'"),
        ("--memory.budget 200XB", "expected text of the form 200MB, 1.5GiB or none, got '200XB'"),
        ("--memory.budget 200mb", "expected text of the form 200MB, 1.5GiB or none, got '200mb'"),
        ("--memory.budget 0MB", "is no memory at all"),
        (
            "--memory.return_freed true --device cuda",
            "--memory.return_freed does not support --device cuda: it is a setting of the C library",
        ),
    ],
)
def test_refused(flags: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(None, flags.split())


@pytest.mark.parametrize("strategy", ["single", "naive", "ddp", "onecopy", "zero", "local", "server"])
@pytest.mark.parametrize("flags", ["--memory.checkpoint 1", "--memory.offload file"])
def test_supported(strategy: str, flags: str) -> None:
    workers = "1" if strategy == "single" else "2"
    config = read(None, ["--strategy", strategy, "--workers", workers, *flags.split()])
    assert config.memory != RunConfig().memory


def test_bf16_parameters_are_computed_in_bf16() -> None:
    assert read(None, ["--memory.parameters", "bf16"]).precision == "bf16"


def test_table_has_a_row_for_every_technique() -> None:
    others = {"offload_dir", "return_freed", "budget"}
    assert set(TECHNIQUES) == set(kinds_of(MemoryConfig)) - others
