"""A run's settings: defaults that follow from other settings, and the names that programs import."""

import pytest

from shoal.config import schema
from shoal.config.read import read
from shoal.config.sections import optimizer, values
from shoal.errors import ConfigError


def test_invariant_bits_set_what_decides_them():
    flags = "--reduction invariant --micro-batch 8"
    made = read(None, f"{flags} --strategy zero --workers 4 --optimizer sgd".split())
    assert (made.threads, made.device, made.optimizer.fast) == (1, "cpu", False)
    assert read(None, f"{flags} --threads 2".split()).threads == 2


def test_programs_may_import_every_section_from_the_schema():
    assert schema.AdamWConfig is optimizer.AdamWConfig
    assert schema.Custom is values.Custom
    with pytest.raises(AttributeError, match="has no attribute 'AdaConfig'"):
        _ = schema.AdaConfig


def test_threads_on_the_gpu_that_auto_found_are_refused_where_backward_communicates():
    flags = "--workers 2 --launcher threads --strategy"
    tensor, ddp = (read(None, [*flags.split(), name]) for name in ("tensor", "ddp"))
    with pytest.raises(ConfigError, match="layout tensor does not support --launcher threads on a GPU"):
        tensor.check_device("cuda")
    tensor.check_device("cpu")
    ddp.check_device("cuda")
