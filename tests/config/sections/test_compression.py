"""Settings of compression: what each codec takes, and every error in one sentence."""

import re
from pathlib import Path

import pytest

from shoal.config.read import read
from shoal.config.sections.compression import CODEC_ROWS, CompressedConfig


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


def test_the_page_lists_every_codec_and_their_settings():
    page = (Path(__file__).parents[3] / "docs/en/compression.md").read_text()
    codecs = page.partition("| codec | bytes per element |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", codecs, re.MULTILINE) == [*CODEC_ROWS]
    settings = page.partition("| setting | codecs |")[2].partition("\n\n")[0]
    taken = {setting for row in CODEC_ROWS.values() for setting in row.settings}
    assert [setting for setting in sorted(taken) if f"`--exchange.{setting}`" not in settings] == []
