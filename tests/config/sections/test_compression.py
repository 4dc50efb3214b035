"""Settings of compression: what each codec takes, and every error in one sentence."""

import re
from pathlib import Path

import pytest

from shoal.config.read import read
from shoal.config.sections.compression import CODEC_ROWS, CompressedConfig
from shoal.errors import ConfigError


def config_of(flags):
    return read(None, ["--strategy", "ddp", "--workers", "2", *flags.split()])


def test_flags_select_codec_and_settings():
    exchange = config_of("--exchange compressed:topk --exchange.ratio 0.01 --exchange.feedback true").exchange
    assert exchange == CompressedConfig(codec="topk", ratio=0.01, feedback=True)
    assert exchange.encoding_of("fc1.weight") == ("topk", {"ratio": 0.01}, True)


def test_the_first_matching_rule_counts():
    exchange = config_of(
        "--exchange compressed:topk --exchange.layers fc1.*=0.001;*.bias=none;*.weight=powersgd:4"
    ).exchange
    encodings = [exchange.encoding_of(name) for name in ("fc1.bias", "fc2.bias", "fc2.weight", "scale")]
    assert encodings == [
        ("topk", {"ratio": 0.001}, True),
        ("none", {}, False),
        ("powersgd", {"rank": 4}, True),
        ("topk", {"ratio": 0.1}, True),
    ]


@pytest.mark.parametrize(
    ("settings", "neutral"),
    [
        ({"codec": "topk"}, False),
        ({"codec": "topk", "ratio": 1.0}, True),
        ({"codec": "threshold", "ratio": 1.0, "threshold": 0.1}, False),
        ({"codec": "dgc", "ratio": 1.0}, False),
        ({"codec": "dgc", "ratio": 1.0, "momentum": 0.0}, True),
        ({"codec": "dgc", "ratio": 1.0, "momentum": 0.0, "clip": 1.0}, False),
    ],
)
def test_neutral_settings_change_no_gradient(settings, neutral):
    assert CompressedConfig(**settings).is_neutral is neutral


def test_feedback_follows_the_codec():
    feedback = {
        codec: CompressedConfig(codec=codec).encoding_of("weight").feedback
        for codec in ("int8", "fp16", "sign", "onebit", "topk", "powersgd")
    }
    assert feedback == {
        "int8": False,
        "fp16": False,
        "sign": True,
        "onebit": True,
        "topk": True,
        "powersgd": True,
    }
    assert not CompressedConfig(codec="sign", vote=True).encoding_of("weight").feedback


def test_auto_chooses_from_its_candidates():
    alternatives = config_of("--exchange compressed:auto").exchange.alternatives()
    assert list(alternatives) == ["none", "fp16", "int8", "topk", "powersgd"]
    flags = "--exchange compressed:auto --exchange.candidates none,topk:0.01 --exchange.layers *.bias=none"
    layers = ("*.bias=none",)
    assert config_of(flags).exchange.alternatives() == {
        "none": CompressedConfig(codec="none", layers=layers),
        "topk:0.01": CompressedConfig(codec="topk", ratio=0.01, layers=layers),
    }


def test_a_stage_may_be_compressed():
    (_, first), (start, second) = config_of(
        "--exchange stages:0=all_reduce,0.2=compressed:sign"
    ).exchange.stages()
    assert (first.name, start, second) == ("all_reduce", 0.2, CompressedConfig(codec="sign"))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("compressed:topk --exchange.ratio 0", "ratio: expected a number > 0 and ≤ 1 or none, got 0"),
        ("compressed:topk --exchange.ratio 1.5", "ratio: expected a number > 0 and ≤ 1 or none, got 1.5"),
        ("compressed:tpk", "did you mean 'topk'?"),
        ("compressed:topk --exchange.rank 3", "codec topk has no setting 'rank'"),
        ("compressed:fp16 --exchange.bits 8", "codec fp16 has no setting 'bits'"),
        ("compressed:qsgd --exchange.bits 5", "an integer among 2, 4, 8, 16, 32 or none, got 5"),
        ("compressed:powersgd --exchange.rank 0", "rank: expected an integer ≥ 1 or none, got 0"),
        (
            "compressed:sign --exchange.vote true --exchange.feedback true",
            "cannot use feedback with a majority",
        ),
        ("compressed:dgc --exchange.feedback false", "dgc accumulates what it does not send"),
        ("compressed:topk --exchange.layers fc1", "expected a rule PATTERN=CODEC"),
        ("compressed:topk --exchange.layers fc1=tpk", "did you mean 'topk'?"),
        ("compressed:topk --exchange.layers fc1=tpk:3", "did you mean 'topk'?"),
        ("compressed:topk --exchange.layers fc1=topk:2", "ratio of 'fc1=topk:2'"),
        ("compressed:topk --exchange.layers fc1=fp16:2", "codec fp16 takes no value"),
        ("compressed:topk --exchange.layers fc1=auto", "unknown codec 'auto'"),
        ("compressed:auto --exchange.ratio 0.1", "codec auto has no setting 'ratio'"),
        ("compressed:topk --exchange.candidates none", "codec topk has no setting 'candidates'"),
        ("compressed:auto --exchange.candidates none,tpk", "did you mean 'topk'?"),
        ("compressed:auto --exchange.candidates none,auto", "unknown codec 'auto'"),
        ("compressed:auto --exchange.candidates fp16,fp16", "candidate 'fp16' is listed twice"),
        ("compressed:auto --exchange.candidates topk:2", "ratio of 'topk:2': expected a number > 0 and ≤ 1"),
        ("compressed:auto --exchange.candidates fp16:2", "codec fp16 takes no value"),
        (
            "compressed:auto --exchange.layers fc1=0.1",
            "codec none takes no value, but 'fc1=0.1' gives it 0.1",
        ),
        (
            "compressed:auto --exchange.feedback false --exchange.candidates dgc",
            "cannot run without feedback",
        ),
        (
            "compressed:auto --exchange.candidates dgc --optimizer sgd --momentum 0.9",
            "does not support --momentum 0.9",
        ),
        ("stages:0=all_reduce,0.5=compressed:auto", "compressed:auto cannot be a stage"),
        (
            "stages:0=compressed:topkk",
            "stage '0=compressed:topkk': unknown codec 'topkk': did you mean 'topk'?",
        ),
        ("stages:0=all_reduce,0.5=compressed:dgc --optimizer sgd --momentum 0.9", "Leave --momentum out"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(flags, sentence):
    with pytest.raises(ConfigError) as error:
        config_of(f"--exchange {flags}")
    assert sentence in f"{error.value} {error.value.hint}"


def test_the_page_lists_every_codec():
    page = (Path(__file__).parents[3] / "docs" / "compression.md").read_text()
    codecs = page.partition("| codec | bytes per element |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", codecs, re.MULTILINE) == [*CODEC_ROWS]
