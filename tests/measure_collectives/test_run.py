import json

import pytest
import torch

from shoal.cli.main import main
from shoal.errors import ConfigError
from shoal.measure_collectives.run import BenchSettings, with_groups_of


def settings(**given):
    return BenchSettings(
        **{
            "op": "all_reduce",
            "groups": (),
            "algorithms": (),
            "workers": 2,
            "begin": 8,
            "end": 8,
            "factor": 2,
            "seconds": 0.01,
            "form": "json",
            "device": "cuda",
            **given,
        }
    )


def test_nccl_is_measured_where_each_worker_has_a_gpu():
    found = with_groups_of(settings(workers=4), num_gpus=4)
    assert (found.groups, found.note) == (("nccl", "gloo"), "")


def test_with_fewer_gpus_gloo_is_measured_and_the_report_says_so():
    found = with_groups_of(settings(), num_gpus=1)
    assert found.groups == ("gloo",)
    assert found.note == "2 workers share 1 GPU: NCCL needs one for each worker, so gloo was measured instead"


@pytest.mark.parametrize(
    ("given", "num_gpus", "message"),
    [
        ({}, 0, "torch sees no GPU"),
        ({"device": "cpu", "groups": ("nccl",)}, 1, "nccl moves memory of GPUs only"),
        ({"device": "cpu", "workers": 1}, 0, "one worker has nothing to exchange"),
        ({"groups": ("shm",)}, 1, "the group shm does not move memory of a GPU"),
    ],
)
def test_what_cannot_be_measured_is_refused(given, num_gpus, message):
    with pytest.raises(ConfigError, match=message):
        with_groups_of(settings(**given), num_gpus)


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["all_reduce", "gather", "scatter", "all_to_all"])
def test_workers_measure_on_gpus(op, capfd):
    words = "bench collectives --device cuda --workers 2 -b 1K -e 4K -f 4 --seconds 0.1 --json --op"
    assert main([*words.split(), op]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["device"] == torch.cuda.get_device_name(0)
    assert all(row["wrong"] == 0 for row in found["rows"])
    if torch.cuda.device_count() == 1:
        assert "gloo was measured instead" in found["note"]
        assert {row["contender"] for row in found["rows"]} == {"gloo", "memory"}


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["all_reduce", "gather", "scatter", "all_to_all"])
def test_nccl_gives_right_results(op, capfd):
    words = f"bench collectives --device cuda --workers {torch.cuda.device_count()} -b 1K -e 1K --seconds 0.1 --json"
    assert main([*words.split(), "--op", op]) == 0
    found = json.loads(capfd.readouterr().out)
    assert {row["contender"] for row in found["rows"]} == {"nccl", "gloo", "memory"}
    assert all(row["wrong"] == 0 for row in found["rows"])
