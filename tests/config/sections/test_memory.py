"""The settings of `--memory`: their values, and a feature of the table of combinations for each technique."""

import pytest

from shoal.config.choices import kinds_of
from shoal.config.features import FEATURES
from shoal.config.read import read
from shoal.config.sections.memory import MemoryConfig
from shoal.errors import ConfigError


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--memory.checkpoint -1", "expected an integer ≥ 0"),
        ("--memory.offload disk", "unknown memory.offload 'disk'"),
        ("--memory.offload_dir /tmp", "has no effect with --memory.offload none"),
        ("--memory.state_bits 16", "expected 32 or 8, got 16"),
        ("--memory.state_bits 8 --optimizer gd", "optimizer gd without momentum: it has no state"),
        ("--memory.budget 200", "expected text of the form 200MB, 1.5GiB or none, got '200'"),
        ("--memory.budget -5MB", "expected text of the form 200MB, 1.5GiB or none, got '-5MB'"),
        ("--memory.budget 200XB", "expected text of the form 200MB, 1.5GiB or none, got '200XB'"),
        ("--memory.budget 200mb", "expected text of the form 200MB, 1.5GiB or none, got '200mb'"),
        ("--memory.budget 0MB", "is no memory at all"),
        ("--memory.parameters bf16 --precision tf32", "needs --precision bf16"),
    ],
)
def test_refused(flags: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(None, flags.split())


def test_bf16_parameters_are_computed_in_bf16() -> None:
    assert read(None, ["--memory.parameters", "bf16"]).precision == "bf16"


def test_every_technique_is_a_feature_of_the_table() -> None:
    paths = {feature.path for feature in FEATURES.values()}
    assert {f"memory.{name}" for name in kinds_of(MemoryConfig)} - paths == {"memory.offload_dir"}
