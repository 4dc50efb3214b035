"""The table of techniques: by formula alone, and compared with what real workers have in use."""

from functools import cache

import pytest
import torch

from shoal.config.read import read
from shoal.errors import ConfigError
from shoal.memory import techniques
from shoal.memory.table import techniques_as_text
from shoal.memory.techniques import (
    bf16_bytes,
    formula_parts,
    returning_freed,
    samples_at_once,
    technique_rows,
)
from shoal.memory.trial import Trial, try_each

TEXT = "--model transformer --model.layers 4 --data synthetic --data.task text --device cpu --batch-size 32"
SMALL = "--model mlp --strategy ddp --workers 2 --optimizer adam --device cpu"
SHAPES = {
    "transformer": "--model transformer --data synthetic --data.task text --batch-size 64",
    "deep transformer": "--model transformer --model.layers 6 --data synthetic --data.task text --data.shape 128 "
    "--batch-size 32",
    "mlp": "--model mlp --model.hidden 1024,1024,1024 --data synthetic --data.shape 784 --batch-size 512",
}
TECHNIQUES = (
    "",
    "--memory.checkpoint 2",
    "--memory.checkpoint 1",
    "--memory.offload file",
    "--micro-batch 16",
    "--memory.step_in_backward",
    "--memory.state_bits 8",
    "--memory.parameters bf16 --memory.checkpoint 1",
)
TOLERANCE = 0.15
"""As in docs/en/memory.md."""


@pytest.fixture(autouse=True, scope="module")
def each_formula_once():
    """The tests ask for the same tables: each formula of a table goes through the model, which takes a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(techniques, "formula_parts", cache(techniques.formula_parts))
        yield


def test_rows_by_formula():
    config = read(None, TEXT.split())
    rows = technique_rows(config, is_measured=False)
    by_flags = {row["flags"]: row["formula_bytes"] for row in rows}
    assert by_flags["--memory.checkpoint 1"] < by_flags["--memory.checkpoint 2"] < by_flags[""]
    assert by_flags["--memory.offload file"] < by_flags["--memory.checkpoint 1"]
    assert by_flags["--micro-batch 8"] < by_flags["--micro-batch 16"] < by_flags[""]
    assert 0.5 * by_flags[""] < by_flags["--memory.parameters bf16"] < 0.9 * by_flags[""]
    shown = techniques_as_text(config, rows)
    assert "Techniques, with 32 samples at once" in shown
    assert "in use" not in shown
    assert "not known" not in shown
    bf16 = next(line for line in shown.splitlines() if line.startswith("--memory.parameters bf16"))
    assert bf16.split()[-2] == "≥"
    assert shown.count("≥") == 2, "that row, and what it means"
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ("--memory.state_bits 8", {"optimizer temporaries": 1, "optimizer state": -1}),
        ("--memory.step_in_backward", {"buckets in flight": 1, "fresh gradients": -1}),
        ("--micro-batch 16", {"fresh gradients": 1, "activations": -1, "working tensors": -1}),
        ("--memory.checkpoint 1", {}),
    ],
)
def test_what_needs_more_than_it_saves_is_explained_by_the_parts_of_the_formula(flags, parts):
    config = read(None, SMALL.split())
    rows = technique_rows(config, is_measured=False)
    row = next(row for row in rows if row["flags"] == flags)
    assert row["formula_bytes"] >= rows[0]["formula_bytes"]
    assert {name: 1 if change > 0 else -1 for name, change in row["changes"].items()} == parts
    assert sum(row["changes"].values()) == row["formula_bytes"] - rows[0]["formula_bytes"]
    text = " ".join(techniques_as_text(config, rows).split())
    why = text.split(f"{flags} needs" if parts else f"{flags} saves nothing")[1].split(" --")[0]
    assert all(name in why for name in parts)
    assert all(len(line) <= 80 for line in techniques_as_text(config, rows).splitlines())


def test_what_saves_memory_needs_no_explanation():
    config = read(None, TEXT.split())
    shown = techniques_as_text(config, technique_rows(config, is_measured=False))
    assert "--memory.checkpoint 1 " in shown
    assert "saves nothing" not in shown
    assert shown.count("more by formula") == shown.count("--memory.step_in_backward needs")


@pytest.mark.parametrize(("mib", "is_said"), [(0.9, False), (1.5, True)])
def test_a_saving_by_formula_that_workers_do_not_have_is_said(mib, is_said):
    known = {
        "takes_away": "activations",
        "is_exact": True,
        "formula_is_bound": False,
        "time": 1.0,
        "measured_bytes": 0,
    }
    plain = known | {
        "technique": "plain",
        "flags": "",
        "formula_bytes": 2**21,
        "in_use_bytes": 2**20,
        "changes": {},
    }
    row = known | {"technique": "checkpointing", "flags": "--memory.checkpoint 1", "formula_bytes": 2**20}
    row |= {"in_use_bytes": int(mib * 2**20), "changes": {"activations": -(2**20)}}
    shown = " ".join(techniques_as_text(read(None, TEXT.split()), [plain, row]).split())
    said = "has 0.5 MiB more in use: 1.0 MiB less by formula, 1.5 MiB more that no formula counts."
    assert (said in shown) == is_said


@pytest.mark.parametrize(("has_amx", "mib"), [(True, "12.0 MiB"), (False, "4.0 MiB")])
def test_the_table_names_the_memory_of_bf16_kernels_on_this_processor(monkeypatch, has_amx, mib):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_amx)
    row = {"technique": "bf16", "flags": "", "takes_away": "", "is_exact": False}
    row |= {"formula_bytes": 2**20, "formula_is_bound": True}
    assert mib in techniques_as_text(read(None, TEXT.split()), [row])


def test_what_is_not_known_in_advance_has_no_number():
    config = read(None, ["--model", "mlp", "--engine", "tape", "--optimizer", "adam"])
    rows = technique_rows(config, is_measured=False)
    assert {row["formula_bytes"] for row in rows} == {None}
    plain = next(line for line in techniques_as_text(config, rows).splitlines() if line.startswith("plain"))
    assert plain.split() == ["plain", "–"]
    assert "–: a part of it is not known without running the model" in techniques_as_text(config, rows)


def test_measured_columns():
    known = {"takes_away": "", "is_exact": True, "formula_bytes": 2**20, "formula_is_bound": False}
    rows = [
        known
        | {"technique": "plain", "flags": "", "in_use_bytes": 2**21, "measured_bytes": 2**22, "time": 1.0}
    ]
    shown = techniques_as_text(read(None, TEXT.split()), rows)
    assert next(line for line in shown.splitlines() if line.startswith("plain")).split()[1:4] == [
        "1.0",
        "2.0",
        "4.0",
    ]
    assert "peak: what is in use, and what the C library keeps of freed memory" in shown
    assert "busy" not in shown


@pytest.mark.parametrize("delayed", ["", "--memory.checkpoint 1"])
def test_a_time_on_a_busy_machine_is_not_compared(monkeypatch, delayed):
    config = read(None, TEXT.split())

    def pretend(configs, **_: object):
        busy = [(each.memory.checkpoint == 1) == bool(delayed) for each in configs]
        return [Trial(2**20, 0.04 if each else 0.001, each) for each in busy]

    monkeypatch.setattr(techniques, "try_each", pretend)
    rows = technique_rows(config)
    times = {row["flags"]: row["time"] for row in rows}
    shown = techniques_as_text(config, rows)
    assert times["--memory.checkpoint 1"] is None
    assert times["--memory.checkpoint 2"] == (1.0 if delayed else None)
    by_label = {line[:28].strip(): line for line in shown.splitlines()}
    assert by_label["--memory.checkpoint 1"].endswith("     busy")
    assert by_label["plain"].endswith("1.00 ×" if delayed else "busy")
    assert "busy: other programs delayed every step" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_technique_that_the_model_refuses_leaves_the_others_in_the_table(monkeypatch):
    config = read(None, TEXT.split())

    def pretend(configs, **_: object):
        if configs[0].memory.checkpoint:
            raise ConfigError(
                "--memory.checkpoint cannot compute block '5' again: it writes into its input", ""
            )
        return [Trial(2**20, 0.001)]

    monkeypatch.setattr(techniques, "try_each", pretend)
    rows = technique_rows(config)
    assert {row["flags"] for row in rows if "refused" in row} == {
        f"--memory.checkpoint {each}" for each in (4, 2, 1)
    }
    assert all(row["time"] == 1.0 for row in rows if "refused" not in row)
    shown = techniques_as_text(config, rows)
    assert "--memory.checkpoint 1 was not measured: --memory.checkpoint cannot compute block" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "technique"),
    [
        *(("transformer", each) for each in TECHNIQUES),
        ("deep transformer", "--memory.checkpoint 1"),
        *(("mlp", each) for each in ("", "--memory.offload file")),
    ],
)
def test_workers_have_in_use_what_the_formula_says(shape, technique):
    config = read(None, f"{SHAPES[shape]} {technique} --optimizer adam --threads 1 --device cpu".split())
    (trial,) = try_each([returning_freed(config)], most=1)
    formula = sum(formula_parts(config).values())
    beside = bf16_bytes() if config.precision == "bf16" else 0
    assert formula * (1 - TOLERANCE) < trial.peak < formula * (1 + TOLERANCE) + beside


def test_samples_at_once_are_a_part_of_a_share():
    assert samples_at_once(read(None, ["--batch-size", "64", "--strategy", "ddp", "--workers", "2"])) == 32
    assert samples_at_once(read(None, ["--batch-size", "64", "--micro-batch", "8"])) == 8
