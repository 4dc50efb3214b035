"""The formulas of a worker's memory: those of the papers, for every strategy and optimizer."""

import pytest

from shoal.errors import ConfigError
from shoal.memory.formulas import components, total
from shoal.strategies.memory import Sizes

PSI = 1_000_000
UNIT = 8_000


def main_of(sync, workers, state=8, **others):
    """Bytes of parameters, gradients and optimizer state for each parameter."""
    sizes = Sizes(PSI, workers, 4 * PSI, state * PSI, **others)
    return total([each for each in components(sync, sizes)[:3] if each.counts]) / PSI


@pytest.mark.parametrize("workers", [2, 4, 64])
def test_adam_in_float32_takes_what_the_papers_say(workers):
    assert main_of("none", 1) == main_of("naive", workers) == main_of("ddp", workers) == 16
    assert main_of("zero", workers, stage=1) == 8 + 8 / workers
    assert main_of("zero", workers, stage=2) == 4 + 12 / workers
    assert main_of("zero", workers, stage=3) == 16 / workers
    assert main_of("onecopy", workers) == 4 / workers + 4 + 8 / workers


def test_other_optimizers_have_less_state():
    assert main_of("ddp", 2, state=0) == 8
    assert main_of("ddp", 2, state=4) == 12
    assert main_of("zero", 4, state=4, stage=3) == 3


def rows_of(sync, **sizes):
    return {each.name: each for each in components(sync, Sizes(PSI, 4, 4 * PSI, 8 * PSI, **sizes))}


def test_what_is_under_way_has_rows_of_its_own():
    zero = rows_of(
        "zero", stage=3, unit=UNIT, num_units=9, maps_memory=False, activations=700, temporaries=50
    )
    assert (zero["buckets in flight"].formula, zero["buckets in flight"].num_bytes) == ("2U", 2 * UNIT)
    assert zero["fresh gradients"].num_bytes == UNIT
    assert zero["gathered units"].num_bytes == 2 * UNIT
    assert zero["activations"].num_bytes == 700
    assert zero["optimizer temporaries"].num_bytes == 50
    assert "gathered units" not in rows_of("zero", stage=3, unit=UNIT)
    assert rows_of("zero", stage=3, unit=UNIT, num_units=1)["buckets in flight"].num_bytes == UNIT
    ddp = rows_of("ddp", largest=300, slots=4000)
    assert (ddp["fresh gradients"].num_bytes, ddp["exchange slots"].num_bytes) == (300, 1000)


@pytest.mark.parametrize(("leaves", "sums"), [(1, 1), (2, 2), (4, 3), (6, 3), (8, 4)])
def test_sums_of_leaves_are_one_for_each_bit_and_the_leaf_itself(leaves, sums):
    ddp = rows_of("ddp", largest=300, leaves=leaves)
    assert ddp["sums of leaves"].num_bytes == sums * 4 * PSI
    assert "fresh gradients" not in ddp
    assert rows_of("zero", stage=3, unit=UNIT, leaves=leaves)["sums of leaves"].num_bytes == sums * 4 * PSI
    # The last sum becomes the gradients, which have a row of their own.
    assert rows_of("naive", leaves=leaves)["sums of leaves"].num_bytes == (sums - 1) * 4 * PSI
    assert rows_of("zero", stage=1, unit=UNIT, leaves=leaves)["sums of leaves"].formula == "4Ψ·⌊log₂ L⌋"


def test_a_part_has_one_gradient_beside_those_that_it_is_added_to():
    one = {each.name: each for each in components("none", Sizes(PSI, 1, 4 * PSI, 8 * PSI, added=500))}
    assert (one["fresh gradients"].formula, one["fresh gradients"].num_bytes) == ("the largest", 500)
    assert rows_of("ddp", largest=300, added=500)["fresh gradients"].num_bytes == 300
    assert "fresh gradients" not in rows_of("naive", leaves=4, added=500)


def test_a_stage_keeps_its_gradients_beside_their_sums():
    ddp = rows_of("ddp", largest=300, keeps_gradients=True)
    assert ddp["kept gradients"].num_bytes == 4 * PSI
    assert "fresh gradients" not in ddp
    assert rows_of("zero", stage=1, unit=UNIT, keeps_gradients=True)["kept gradients"].num_bytes == PSI
    one = Sizes(PSI, 1, 4 * PSI, 8 * PSI, keeps_gradients=True)
    assert "kept gradients" not in {each.name for each in components("none", one)}


def test_local_keeps_what_an_averaging_needs():
    rows = rows_of("local", averages_state=True)
    assert (rows["averaging"].formula, rows["averaging"].num_bytes) == ("12Ψ", 12 * PSI)
    assert (rows["buckets in flight"].formula, rows["buckets in flight"].num_bytes) == ("4Ψ + 8Ψ", 12 * PSI)
    assert rows_of("local")["buckets in flight"].num_bytes == 4 * PSI


def test_buffers_and_frozen_parameters_are_divided_by_no_strategy():
    params = rows_of("zero", stage=3, fixed=123)["parameters"]
    assert (params.formula, params.num_bytes) == ("4Ψ/N + fixed", PSI + 123)


def test_offloaded_state_is_shown_and_not_counted():
    rows = rows_of("zero", offload="file")
    assert (rows["offloaded state"].formula, rows["offloaded state"].num_bytes) == (
        "8Ψ/N, in a file",
        2 * PSI,
    )
    assert "optimizer state" not in rows
    assert total([*rows.values()]) == 8 * PSI
    assert rows_of("zero", offload="memory", offload_window=99)["optimizer state"].num_bytes == 99


def test_a_sync_without_a_formula_is_refused():
    with pytest.raises(ConfigError, match="there is no formula for the memory of sync rpc"):
        rows_of("rpc")


def test_gradients_that_are_updated_in_backward_are_few():
    sizes = Sizes(num_params=1000, workers=2, weights=4000, state=8000, updated_in_backward=400)
    for sync, rows in {
        "none": [("gradients", "B", 400)],
        "ddp": [("gradients", "B", 400), ("buckets in flight", "2B", 800)],
    }.items():
        found = [(each.name, each.formula, each.num_bytes) for each in components(sync, sizes)]
        assert [
            row for row in found if row[0] in ("gradients", "fresh gradients", "buckets in flight")
        ] == rows
