"""The contract of codecs: ours keep it, and each codec that is wrong on purpose fails the clause that it breaks."""

import sys

import pytest

from shoal.config.sections.compression import CODEC_ROWS, CompressedConfig
from shoal.errors import ConfigError
from shoal.strategies.exchange.codec_contract import CLAUSES, CodecSubject, examine_codec

WRONG = """
import torch
from shoal.codecs.codec import Codec, Field, generator

class Right(Codec):
    def fields(self, form):
        return (Field(form.dtype, form.numel),)
    def encode(self, x, seed, memory=None):
        return (x.reshape(-1).clone(),)
    def decode(self, payload, form, seed):
        return payload[0].view(form.shape).clone()

class Longer(Right):
    def encode(self, x, seed, memory=None):
        return (torch.cat([x.reshape(-1), x.new_zeros(1)]),)

class NoTuple(Right):
    def encode(self, x, seed, memory=None):
        return x.reshape(-1).clone()

class NotFlat(Right):
    def encode(self, x, seed, memory=None):
        return (x.clone(),)

class NoFields(Right):
    def fields(self, form):
        pass

class OneField(Right):
    def fields(self, form):
        return super().fields(form)[0]

class PlainFields(Right):
    def fields(self, form):
        return ((form.dtype, form.numel),)

class Raising(Right):
    def encode(self, x, seed, memory=None):
        raise ValueError("no numbers today")

class Flat(Right):
    def decode(self, payload, form, seed):
        return payload[0]

class Overwriting(Right):
    def encode(self, x, seed, memory=None):
        return (x.neg_().reshape(-1).clone(),)

class WrongError(Right):
    def subtract(self, x, payload, seed):
        x.zero_().sub_(1)

class Unseeded(Right):
    def encode(self, x, seed, memory=None):
        return (x.reshape(-1) * (1 + 0.01 * torch.randn(x.numel(), dtype=x.dtype)),)

class Counting(Right):
    made = 0
    def __init__(self):
        Counting.made += 1
        self.factor = 1 + Counting.made / 1000
    def decode(self, payload, form, seed):
        return payload[0].view(form.shape) * self.factor

class ByMaximum(Right):
    def decode(self, payload, form, seed):
        top = payload[0].abs().max() if form.numel else 1
        return (payload[0] / top * top).view(form.shape)

class HidesNan(Right):
    shows_nonfinite = True
    def encode(self, x, seed, memory=None):
        return (x.reshape(-1).nan_to_num(0, 0, 0),)

class Bytes(Right):
    def fields(self, form):
        return (Field(torch.uint8, form.numel * form.dtype.itemsize),)
    def encode(self, x, seed, memory=None):
        return (x.reshape(-1).view(torch.uint8).clone(),)
    def decode(self, payload, form, seed):
        return payload[0].view(form.dtype).view(form.shape).clone()

class Noisy(Right):
    part, loud = 1.0, 0.3
    def encode(self, x, seed, memory=None):
        noise = torch.randn(x.numel(), generator=generator(seed, x.device), dtype=x.dtype)
        return (self.part * x.reshape(-1) + self.loud * noise * x.abs().mean() if x.numel() else x.reshape(-1).clone(),)

class Unbiased(Noisy):
    is_unbiased = True

class Biased(Unbiased):
    part = 0.8

class Loud(Unbiased):
    loud = 100.0

class HalfEverySecond(Right):
    is_unbiased = True
    def decode(self, payload, form, seed):
        return payload[0].view(form.shape) / 2

class NeverTheFirst(Right):
    def decode(self, payload, form, seed):
        decoded = payload[0].clone()
        decoded[:1] = 0
        return decoded.view(form.shape)

class Triple(Right):
    def decode(self, payload, form, seed):
        return 3 * payload[0].view(form.shape)
"""


@pytest.fixture
def wrong(tmp_path, monkeypatch):
    (tmp_path / "wrong_codecs.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)

    def verdicts(name, **settings):
        config = CompressedConfig(codec=f"wrong_codecs:{name}", **settings)
        return {verdict.name: verdict for verdict in examine_codec(CodecSubject(config))}

    yield verdicts
    sys.modules.pop("wrong_codecs", None)


@pytest.mark.parametrize("codec", CODEC_ROWS)
def test_ours_keep_it(codec):
    verdicts = list(examine_codec(CodecSubject(CompressedConfig(codec=codec))))
    assert [verdict for verdict in verdicts if verdict.problem] == []
    assert {verdict.name for verdict in verdicts} >= CLAUSES.keys() - {"feedback"}


@pytest.mark.parametrize(
    ("name", "clause", "said"),
    [
        ("Longer", "declared size", "encodes 'weight' in 8 bytes (1 float64), but declares 0 bytes"),
        ("NoTuple", "declared size", "as a Tensor, no tuple of tensors"),
        ("NotFlat", "declared size", "with a tensor of shape 9 × 14, expected flat ones"),
        (
            "NoFields",
            "declared size",
            "NoFields returned a value of type NoneType, expected a tuple of Field",
        ),
        ("OneField", "declared size", "OneField returned a value of type Field, expected"),
        (
            "PlainFields",
            "declared size",
            "returned a tuple with a value of type tuple, expected a tuple of Field",
        ),
        ("Raising", "declared size", "ValueError: no numbers today (at "),
        ("Flat", "decodes", "decode returned 126 in float64"),
        ("Overwriting", "decodes", "encode changed the gradient"),
        ("WrongError", "decodes", "away from x − decode(payload)"),
        ("Unseeded", "deterministic", "encodes the same gradient with the same seed differently"),
        ("Counting", "deterministic", "two workers decode the same payload differently"),
        ("ByMaximum", "zeros", "zeros are decoded as nan"),
        ("HidesNan", "not finite", "shows_nonfinite"),
        ("Bytes", "not finite", "give the payload a floating-point tensor"),
        ("Biased", "bias", "it declares is_unbiased, but is biased"),
        ("HalfEverySecond", "bias", "no seed changes it, and it is 50 % off"),
        ("NeverTheFirst", "feedback", "the residual grows"),
        ("Triple", "feedback", "the residual grows"),
    ],
)
def test_a_wrong_codec_fails_the_clause_that_it_breaks(wrong, name, clause, said):
    verdicts = wrong(name)
    failed = [verdict.name for verdict in verdicts.values() if verdict.problem]
    assert failed[0] == clause
    assert said in verdicts[clause].problem
    assert (len(verdicts) == 1) == (clause == "declared size")


@pytest.mark.parametrize(
    ("name", "said"),
    [("Right", "deterministic, and 0 % off"), ("Unbiased", "unbiased: "), ("Loud", "undecided: ")],
)
def test_the_bias_is_measured(wrong, name, said):
    found = wrong(name)["bias"]
    assert not found.problem
    assert said in found.found


def test_the_size_is_told_and_feedback_is_examined_where_it_is_used(wrong):
    verdicts = wrong("Right")
    assert not any(verdict.problem for verdict in verdicts.values())
    assert "257 float32 in 1,028 bytes" in verdicts["declared size"].found
    assert "feedback" not in wrong("NeverTheFirst", feedback=False)


def test_what_chooses_codecs_is_none():
    with pytest.raises(ConfigError, match="auto is no codec"):
        CodecSubject(CompressedConfig(codec="auto"))
