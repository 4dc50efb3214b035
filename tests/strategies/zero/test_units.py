"""The cut of a model into units: every parameter once, modules whole where they fit, pieces that start at chunks."""

import pytest
import torch
from torch import nn

from shoal.errors import ConfigError
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.norms import CHUNK
from shoal.strategies.zero.units import check_fits, cut, users_of


def names_of(units):
    return [list(unit.shapes) for unit in units]


def cut_at(model, kib, size=2, **options):
    return cut(model, dict(model.named_parameters()), size, kib * 1024, **options)


def test_modules_that_fit_are_not_divided_and_share_a_unit():
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))  # 1088 bytes each
    assert names_of(cut_at(model, 2.2)) == [
        ["0.weight", "0.bias", "1.weight", "1.bias"],
        ["2.weight", "2.bias", "3.weight", "3.bias"],
    ]
    assert names_of(cut_at(model, 0.1)) == [[f"{layer}.weight", f"{layer}.bias"] for layer in range(4)]
    assert len(cut_at(model, 100)) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_owners_have_every_element_once_from_a_chunk_on(size):
    model = nn.Sequential(nn.Linear(70, 50), nn.Linear(50, 3), nn.Linear(3, 3))
    counts = {name: torch.zeros(param.numel()) for name, param in model.named_parameters()}
    units = cut_at(model, 1, size)
    for unit in units:
        for rank in range(size):
            for name, start, stop, offset in unit.owned_by(rank):
                counts[name][start:stop] += 1
                assert start % CHUNK == 0
                assert rank * unit.piece <= offset < (rank + 1) * unit.piece
    assert all((count == 1).all() for count in counts.values())


def test_no_two_units_are_of_one_size():
    units = cut_at(nn.Sequential(*(nn.Linear(16, 16) for _ in range(6))), 0.1)
    assert len({unit.piece for unit in units}) == len(units) == 6


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.middle, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9)
        self.head.weight = self.embedding.weight


def test_tied_weights_are_in_one_unit_which_both_modules_need():
    model = Tied()
    units = cut_at(model, 0.1)
    assert names_of(units) == [["embedding.weight"], ["middle.weight", "middle.bias"], ["head.bias"]]
    users = users_of(model, dict(model.named_parameters()), units)
    assert users[model.embedding] == [0]
    assert users[model.head] == [0, 2]


def test_a_users_function_is_asked_once_about_tied_weights():
    model, asked = Tied(), []

    def unit_of(name):
        asked.append(name)
        return name.partition(".")[0]

    units = cut_at(model, 1, unit_of=unit_of)
    assert "head.weight" not in asked, "one parameter, under its first name"
    assert names_of(units) == [["embedding.weight"], ["middle.weight", "middle.bias"], ["head.bias"]]
    assert users_of(model, dict(model.named_parameters()), units)[model.head] == [0, 2]


def test_a_unit_larger_than_memory_is_refused_by_name():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(10, 10), nn.Linear(2**15, 2**15, bias=False))  # 4 GiB
    units = cut_at(model, 1)
    check_fits(units, 2, memory=6.1 * units[1].num_bytes)
    with pytest.raises(
        ConfigError, match=r"unit of '1.weight' is 4 GiB, and a step needs memory for 6"
    ) as caught:
        check_fits(units, 2, memory=5.9 * units[1].num_bytes)
    assert caught.value.hint == "Divide the layer in two: a parameter is not divided."
    (unit,) = cut_at(model, 2**30)
    with pytest.raises(ConfigError, match=r"unit of 3 parameters from '0.weight' on") as caught:
        check_fits([unit], 1, memory=2**30)
    assert "smaller unit_mib" in caught.value.hint


class Mixed(nn.Module):
    """Parameters of its own, in a list, and in modules that torch's attention uses without calling them."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(4))
        self.scales = nn.ParameterList([torch.ones(4), torch.ones(4)])
        self.attention = nn.MultiheadAttention(4, 2)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])


def test_a_module_needs_what_it_uses_without_calling_it():
    model = Mixed()
    units = cut_at(model, 0.05)
    users = users_of(model, dict(model.named_parameters()), units)
    assert names_of(units)[0] == ["token", "scales.0", "scales.1"]
    assert users[model] == [0]
    attention = {"attention.in_proj_weight", "attention.in_proj_bias", "attention.out_proj.weight"}
    (index,) = users[model.attention]
    assert attention <= set(units[index].shapes)


def test_a_users_function_cuts():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    units = cut_at(model, 1, unit_of=lambda name: name.startswith("1"))
    assert names_of(units) == [["0.weight", "0.bias", "2.weight", "2.bias"], ["1.weight", "1.bias"]]
    with pytest.raises(ConfigError, match=r"returned \[\] for '0.weight'"):
        cut_at(model, 1, unit_of=lambda name: [])


def test_a_unit_has_parameters_of_one_kind():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).double())
    units = cut(model, dict(model.named_parameters()), 2, MIB)
    assert [unit.kind.dtype for unit in units] == [torch.float32, torch.float64]
