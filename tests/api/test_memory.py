"""`shoal.memory`: what `shoal memory` shows, as numbers."""

import pytest

import shoal
from shoal.errors import ConfigError


def test_the_formulas_need_no_workers():
    found = shoal.memory(
        model="linear", strategy={"name": "zero", "stage": 3}, workers=1000, formula_only=True
    )
    bytes_of = {each.name: each.num_bytes for each in found.fullest.components}
    assert 0 < 100 * bytes_of["optimizer state"] < 8 * found.fullest.sizes.num_params
    assert "8Ψ/N" in repr(found)
    assert not found.is_measured


@pytest.mark.long
def test_a_worker_is_measured_beside_its_formula():
    found = shoal.memory(model="linear", threads=1, device="cpu")
    assert [worker.rank for worker in found.workers] == [0]
    assert found.fullest.measured["parameters"] == 4 * found.fullest.sizes.num_params
    assert "measured" in repr(found)


def test_wrong_settings_are_the_same_errors():
    with pytest.raises(ConfigError, match="did you mean 'lenet'"):
        shoal.memory(model="lenett")
