"""A strategy, a schedule and a codec, each one file outside the package: used by name, and held to its contract.

Nothing in `src/shoal` knows of them. Each is named as `package.module:name` where one of ours is named.
"""

import json
import re
import sys

import pytest
import torch
from codec_cases import SHAPES, fitted, gradient
from safetensors.torch import load_file

from shoal.cli.main import main
from shoal.codecs.build import build_codec
from shoal.config.sections.compression import CompressedConfig

FILES = {
    "added_strategy": '''
"""The sum of all gradients, gathered by every worker and added in rank order."""
import torch
import shoal

class Gathered(shoal.ReplicaSync):
    def combine(self, gradients, part):
        for gradient in gradients.values():
            rows = torch.empty(self.group.size, *gradient.shape, dtype=gradient.dtype)
            self.group.all_gather(rows, gradient.contiguous()).wait()
            gradient.copy_(rows.sum(0))

class Halved(Gathered):
    """Wrong: half of the sum."""
    def combine(self, gradients, part):
        super().combine(gradients, part)
        for gradient in gradients.values():
            gradient /= 2
''',
    "added_schedule": '''
"""GPipe in groups of two micro-batches: two activations at once."""
from shoal.strategies.pipeline.schedule import Schedule, parse_row
from shoal.strategies.pipeline.timing import with_messages

def pairs(stages, microbatches):
    """Two forwards, two backwards, and so on."""
    groups = [range(first, min(first + 2, microbatches)) for first in range(0, microbatches, 2)]
    text = " ".join(" ".join([*(f"F{k}" for k in group), *(f"B{k}" for k in group)]) for group in groups)
    peak = min(2, microbatches)
    return Schedule("pairs", microbatches, with_messages([parse_row(text)] * stages), (peak,) * stages)

def greedy(stages, microbatches):
    """Wrong: it declares less memory than it needs."""
    made = pairs(stages, microbatches)
    return Schedule("greedy", microbatches, made.rows, (1,) * stages)

def updating(stages, microbatches):
    """Not supported: an update after the first backward."""
    return Schedule("updating", microbatches, with_messages([parse_row("F0 B0 U0 F1 B1 U1")] * stages), (1,) * stages)

def short(stages, microbatches):
    return pairs(stages, 1)

def nothing(stages, microbatches):
    return None

def raising(stages, microbatches):
    raise KeyError("rows")

def other_letters(stages, microbatches):
    return parse_row("F0 X0")

def of_texts(stages, microbatches):
    return Schedule("texts", microbatches, [["F0", "B0"]] * stages, (1,) * stages)
''',
    "added_rule": '''
"""The mean: no rule that tolerates anything."""

def mean(rows, bad):
    return rows.mean(0)

def first_row_twice(rows, bad):
    return rows[:2]
''',
    "added_codec": '''
"""Codecs: all bytes of a gradient, and one that rounds."""
import torch
from shoal.codecs.codec import Codec, Field

class Bytes(Codec):
    """Lossless: the bytes as they are."""
    def fields(self, form):
        return (Field(torch.uint8, form.numel * form.dtype.itemsize),)

    def encode(self, x, seed, memory=None):
        return (x.reshape(-1).view(torch.uint8).clone(),)

    def decode(self, payload, form, seed):
        return payload[0].view(form.dtype).reshape(form.shape).clone()

class Longer(Bytes):
    """Wrong: one byte more than it declares."""
    def encode(self, x, seed, memory=None):
        return (torch.cat([*super().encode(x, seed), x.new_zeros(1, dtype=torch.uint8)]),)

class Eighths(Codec):
    """Lossy: the largest magnitude, and multiples of its eighth."""
    def fields(self, form):
        return (Field(form.dtype, 1), Field(torch.int8, form.numel))

    def encode(self, x, seed, memory=None):
        top = x.abs().amax().reshape(1) if x.numel() else x.new_zeros(1)
        return top, (x.reshape(-1) / top.clamp(min=1e-30) * 8).round().to(torch.int8)

    def decode(self, payload, form, seed):
        top, eighths = payload
        return (eighths * top / 8).reshape(form.shape)

class Needs(Codec):
    def __init__(self, digits):
        pass

def no_codec():
    return torch.zeros(3)
''',
}
TINY = (
    "--data synthetic --data.samples 48 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8,8 "
    "--batch-size 12 --epochs 2 --threads 1 --device cpu --launcher threads --optimizer sgd --lr 0.1 --json"
)


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    yield
    for name in FILES:
        sys.modules.pop(name, None)


@pytest.fixture
def trained(tmp_path, capsys):
    def final_loss(*flags):
        """What a run with these flags ends with; 12 digits of it, and none of its time."""
        code = main(["train", *TINY.split(), "--runs-dir", str(tmp_path / "runs"), *flags])
        found = capsys.readouterr()
        assert code == 0, found.err
        return json.loads(found.out)["final_loss"]

    return final_loss


def same_weights(folder, *names):
    """Whether these runs end with the same bits."""
    one, other = (load_file(folder / "runs" / name / "model.safetensors") for name in names)
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def refused(capsys, *words):
    """The error with which a command ends."""
    assert main([*words]) == 2
    return capsys.readouterr().err


def test_a_strategy(trained, capsys):
    assert main(["check", "strategy", "added_strategy:Gathered"]) == 0
    assert "equals one machine" in capsys.readouterr().out
    single = trained("--strategy", "single")
    assert trained("--strategy", "added_strategy:Gathered", "--workers", "3") == pytest.approx(
        single, rel=1e-5
    )
    assert main(["check", "strategy", "added_strategy:Halved", "--workers", "2"]) == 1
    assert "FAIL  one machine" in capsys.readouterr().out


PIPELINE = ("--mesh", "pipeline=2", "--pipeline.microbatches", "4", "--pipeline.schedule")


def test_a_schedule(trained, capsys, tmp_path):
    assert trained(*PIPELINE, "added_schedule:pairs", "--name", "own") == pytest.approx(
        trained("--strategy", "single", "--name", "one"), rel=1e-5
    )
    assert main(["explain", "added_schedule:pairs", "--stages", "2", "--microbatches", "4"]) == 0
    assert "Two forwards, two backwards" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "runs" / "one"), str(tmp_path / "runs" / "own")]) == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("greedy", "holds 2 live activations at its peak, 1 declared"),
        ("updating", "updates the weights inside a step"),
        ("short", "expected 2 and 4"),
        ("nothing", "expected a Schedule"),
        ("raising", "raising raised KeyError for 2 stages and 4 micro-batches: 'rows' (at "),
        ("other_letters", "'X0' is no action of a pipeline schedule"),
        ("of_texts", "has rows of other values than Action"),
        ("pair", "did you mean 'pairs'"),
    ],
)
def test_a_wrong_schedule_is_refused_before_a_worker_starts(name, said, capsys, tmp_path):
    words = "train", *TINY.split(), "--runs-dir", str(tmp_path / "runs"), *PIPELINE
    assert said in refused(capsys, *words, f"added_schedule:{name}")
    assert not (tmp_path / "runs").exists()


COMPRESSED = ("--strategy", "ddp", "--workers", "2", "--exchange")


def test_a_codec_that_loses_nothing(trained, tmp_path):
    assert trained(*COMPRESSED, "compressed:added_codec:Bytes", "--name", "own") == trained(
        *COMPRESSED, "all_reduce", "--name", "ddp"
    )
    assert same_weights(tmp_path, "own", "ddp")


@pytest.mark.parametrize("strategy", ["ddp", "local --strategy.every 2", "server"])
def test_a_payload_that_is_longer_than_declared_is_one_sentence_with_the_rank(strategy, capsys, tmp_path):
    flags = "--strategy", *strategy.split(), "--workers", "2", "--exchange", "compressed:added_codec:Longer"
    said = refused(capsys, "train", *TINY.split(), "--runs-dir", str(tmp_path / "runs"), *flags)
    assert re.search(
        r"rank \d of \d: codec added_codec:Longer encodes '\S+' in \d+ bytes .*, but declares \d+", said
    )
    assert "Traceback" not in said


def test_a_codec_that_rounds(trained, capsys):
    """It is checked as a lossy sum, trains with feedback, and its loss is near the exact one."""
    assert main(["check", "exchange", "compressed:added_codec:Eighths", "--workers", "3"]) == 0
    assert "a lossy sum, with 1 to 3 workers" in capsys.readouterr().out
    exact = trained(*COMPRESSED, "all_reduce")
    rounded = trained(*COMPRESSED, "compressed:added_codec:Eighths")
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=0.02)
    without = trained(*COMPRESSED, "compressed:added_codec:Eighths", "--exchange.feedback", "false")
    assert without not in (rounded, exact)


@pytest.mark.parametrize("name", ["Bytes", "Eighths"])
def test_a_codec_keeps_the_contract(name, monkeypatch):
    """As `test_codec.py` requires it of ours: declared sizes; what is decoded and the error make the gradient."""
    codec = build_codec(CompressedConfig(codec=f"added_codec:{name}").encoding_of("weight"))
    for shape in SHAPES:
        x = gradient(shape)
        codec, form, memory = fitted(codec, x)
        payload = codec.encode(x, 3, memory)
        assert [(tensor.dtype, tensor.numel()) for tensor in payload] == [*codec.fields(form)]
        error = x.clone()
        codec.subtract(error, payload, 3)
        assert torch.allclose(codec.decode(payload, form, 3) + error, x, rtol=0, atol=1e-13)
        assert name != "Bytes" or not error.any()


@pytest.mark.parametrize(
    ("codec", "said"),
    [
        ("added_codec:no_codec", "expected a Codec"),
        ("added_codec:Needs", "takes no options, but is declared as Needs(digits): missing"),
        ("added_codec:Byte", "did you mean 'Bytes'"),
        ("byte", "exchange.codec"),
    ],
)
def test_a_wrong_codec_is_refused_before_a_worker_starts(codec, said, capsys, tmp_path):
    words = "train", *TINY.split(), "--runs-dir", str(tmp_path / "runs"), *COMPRESSED
    assert said in refused(capsys, *words, f"compressed:{codec}")
    assert not (tmp_path / "runs").exists()


def test_a_rule(trained, tmp_path, capsys):
    """The mean of two workers is exact, and so is twice that."""
    ddp = trained(*COMPRESSED, "all_reduce", "--name", "ddp")
    mean = "robust:added_rule:mean", "--exchange.bad", "0"
    assert trained(*COMPRESSED, *mean, "--name", "own") == ddp
    assert same_weights(tmp_path, "own", "ddp")
    assert trained(*COMPRESSED, *mean, "--strategy", "server") == pytest.approx(ddp, rel=1e-5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--exchange robust:added_rule:mean",
            "tolerates 1 bad worker only with at least 3 workers; you have 2",
        ),
        ("--exchange robust:added_rule:men", "did you mean 'mean'"),
        (
            "--exchange robust:added_rule:first_row_twice --exchange.bad 0",
            r"rank \d of 2: rule added_rule:first_row_twice returned 2 × \d+ elements in torch.float32, expected",
        ),
        (
            "--exchange robust:added_rule:mean --workers 3 --fault rank=1,gradient=nan",
            r"rank \d of 3: rule added_rule:mean returned a number that is not finite, though 1 of 3 rows have one",
        ),
    ],
)
def test_a_wrong_rule_is_one_sentence(words, said, capsys, tmp_path):
    flags = "--runs-dir", str(tmp_path / "runs"), *COMPRESSED[:-1]
    found = refused(capsys, "train", *TINY.split(), *flags, *words.split())
    assert re.search(said, found)
    assert "Traceback" not in found


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ('[pipeline]\nschedule = "added_schedule:pairs"', "--pipeline.schedule"),
        ('[exchange]\nname = "compressed"\ncodec = "added_codec:Bytes"', "--exchange.codec"),
        ('[exchange]\nname = "robust"\nrule = "added_rule:mean"', "--exchange.rule"),
        ('[strategy]\nname = "added_strategy:Gathered"', "--sync"),
    ],
)
def test_a_file_that_names_one_runs_no_code_without_consent(text, flag, capsys, tmp_path):
    (tmp_path / "recipe.toml").write_text(f"{text}\n[launch]\nworkers = 2\n")
    others = {
        "--pipeline.schedule": ("--mesh", "pipeline=2"),
        "--exchange.codec": ("--strategy", "ddp"),
        "--exchange.rule": ("--strategy", "ddp"),
    }
    runs = ("--runs-dir", str(tmp_path / "runs"))
    said = refused(capsys, "train", "recipe.toml", *others.get(flag, ()), *runs)
    assert "files run no code without consent" in said
    assert f"add {flag} " in said
