"""The workers as a grid: each axis is a group of its own."""

import pytest
import torch

from shoal.comm.mesh import Mesh, coordinates, ranks_along
from shoal.comm.threads.group import run_threads
from shoal.errors import ConfigError


def sums_along(sizes, workers):
    """Each worker's rank summed along every axis."""

    def work(group):
        mesh = Mesh(group, sizes)
        sums = {}
        for axis in sizes:
            along = mesh.axis(axis)
            number = torch.tensor([group.rank])
            if along is not None:
                along.all_reduce(number).wait()
            sums[axis] = number.item()
        return sums

    return run_threads(workers, work)


def test_groups_join_the_workers_that_differ_in_one_coordinate():
    sums = sums_along({"data": 2, "pipeline": 1, "tensor": 3}, 6)
    assert [found["tensor"] for found in sums] == [0 + 1 + 2] * 3 + [3 + 4 + 5] * 3
    assert [found["data"] for found in sums] == [3, 5, 7] * 2
    assert [found["pipeline"] for found in sums] == list(range(6)), "an axis of size 1 has no group"


def test_an_axis_with_all_workers_is_the_world_itself():
    def work(group):
        return Mesh(group, {"data": 2}).axis("data") is group

    assert run_threads(2, work) == [True, True]


def test_every_rank_has_coordinates_of_its_own():
    sizes = {"data": 2, "pipeline": 2, "tensor": 2}
    places = [coordinates(rank, sizes) for rank in range(8)]
    assert len({tuple(place.values()) for place in places}) == 8
    assert places[5] == {"data": 1, "pipeline": 0, "tensor": 1}
    for rank in range(8):
        for axis in sizes:
            ranks = ranks_along(axis, rank, sizes)
            assert rank in ranks
            assert all(
                coordinates(other, sizes)[name] == places[rank][name]
                for other in ranks
                for name in sizes
                if name != axis
            )


def test_a_wrong_product_shows_every_factor():
    def work(group):
        with pytest.raises(ConfigError, match=r"data \(3\) × tensor \(2\) = 6 workers, but there are 2"):
            Mesh(group, {"data": 3, "tensor": 2})

    run_threads(2, work)
