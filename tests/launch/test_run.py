"""Workers started by hand that cannot form a group: each says why, in one sentence."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from shoal.cli.main import main
from shoal.comm.join import WorkerAddress
from shoal.comm.rendezvous.store import listen
from shoal.config.read import read
from shoal.errors import JoinError
from shoal.launch.one_worker import facts_of
from shoal.launch.run import launch_run
from shoal.training.observer import Silent

TINY = "--data synthetic --data.samples 60 --data.shape 1,4,4 --data.classes 3 --model mlp --model.hidden 8 "
TINY += "--batch-size 20 --epochs 2 --device cpu --strategy naive"


def free_port():
    with listen("127.0.0.1", 0) as server:
        return server.getsockname()[1]


def by_hand(capsys, tmp_path, *words):
    """What a person reads who starts one rank."""
    code = main(["train", *TINY.split(), "--runs-dir", str(tmp_path), "--join-timeout", "1", *words])
    captured = capsys.readouterr()
    assert code == 2
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []
    return captured.err


@pytest.mark.parametrize("group", ["auto", "shm", "gloo"])
def test_a_rank_that_never_starts_is_named(capsys, tmp_path, group):
    place = ["--rank", "0", "--world-size", "3", "--master", f"127.0.0.1:{free_port()}"]
    said = by_hand(capsys, tmp_path, *place, "--group", group)
    assert "ranks 1, 2 are missing: 1 of 3 workers joined within 1 s" in said


def test_no_rank_0(capsys, tmp_path):
    port = free_port()
    said = by_hand(capsys, tmp_path, "--rank", "1", "--n_devices", "2", "--master_port", str(port))
    assert f"rank 1 found no store at 127.0.0.1:{port} within 1 s" in said
    assert "Rank 0 holds it" in said


def test_a_port_that_is_taken(capsys, tmp_path):
    with listen("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
        said = by_hand(capsys, tmp_path, "--rank", "0", "--world-size", "2", "--master", f"127.0.0.1:{port}")
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_master_that_cannot_be_resolved(capsys, tmp_path, rank):
    said = by_hand(
        capsys, tmp_path, "--rank", rank, "--world-size", "2", "--master", "no.such.host.invalid:1"
    )
    assert "cannot resolve master address 'no.such.host.invalid'" in said


def both(tmp_path, first, second, sizes=(2, 2)):
    """Two workers by hand, as threads of this process: they meet, and refuse each other, before they form a group."""
    port = free_port()

    def worker(rank, flags):
        config = read(None, [*TINY.split(), "--group", "gloo", *flags.split(), "--runs-dir", str(tmp_path)])
        place = WorkerAddress(rank, sizes[rank], "127.0.0.1", port)
        with pytest.raises(JoinError) as caught:
            launch_run(config, Silent(), None, place, join_timeout_s=60)
        return caught.value.message

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(worker, range(2), (first, second)))
    assert list(tmp_path.iterdir()) == []
    return said


def test_other_settings_on_one_rank_show_the_first_that_differs_from_both_sides(tmp_path):
    said = both(tmp_path, "--seed 1 --lr 0.1", "--seed 2 --lr 0.1")
    assert said == ["rank 0 has seed 1, rank 1 has seed 2", "rank 1 has seed 2, rank 0 has seed 1"]


def test_another_world_size_on_one_rank(tmp_path):
    said = both(tmp_path, "", "", sizes=(2, 3))
    assert said[0] == "rank 0 has world size 2, rank 1 has world size 3"
    assert said[1] == "rank 1 has world size 3, rank 0 has world size 2"


@pytest.mark.parametrize(("first", "second"), [("shm", "gloo"), ("auto", "shm"), ("gloo", "auto")])
def test_another_group_on_one_rank(tmp_path, first, second):
    said = both(tmp_path, f"--group {first}", f"--group {second}")
    assert said[0] == f"rank 0 has group {first}, rank 1 has group {second}"
    assert said[1] == f"rank 1 has group {second}, rank 0 has group {first}"


def test_another_version_on_one_rank(tmp_path, monkeypatch):
    versions = iter(["0.1.0", "0.2.0"])

    def differing(config, resumed=None):
        return facts_of(config, resumed) | {"shoal": next(versions)}

    monkeypatch.setattr("shoal.launch.one_worker.facts_of", differing)
    said = both(tmp_path, "", "")
    assert any("has shoal 0.1.0" in each and "has shoal 0.2.0" in each for each in said)
