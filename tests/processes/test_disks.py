"""Workers in folders of their own, as on machines without a shared disk: one run, and no disk whose loss loses it."""

import os
import shutil
import signal

import pytest
from launching import environment, free_port, wait_until
from nodes import needs_nodes, nodes
from nursery import Nursery

from shoal.cli.main import main
from shoal.events.file import check_events, read_events
from shoal.events.folder import RunFolder
from shoal.training import checkpoint

TINY = "--data synthetic --data.samples 100 --data.shape 1,4,4 --data.classes 3 --batch-size 32 --epochs 3 "
TINY += "--threads 1 --device cpu --checkpoint-every 3 --model dying_save:net --seed 3"
NEW = f"{TINY} --name run"
STRATEGIES = {
    "ddp": "--strategy ddp",
    "zero": "--strategy zero --strategy.stage 3",
    "pipeline": "--mesh pipeline=2",
}
STEPS = 12


@pytest.fixture(scope="module")
def nursery():
    nursery = Nursery(environment(), "shoal.cli.train", "shoal.training.worker", "shoal.strategies.zero.zero")
    yield nursery
    nursery.close()


@pytest.fixture
def start(nursery, tmp_path):
    """Starts a run with one worker for each letter of `places`; workers with the same letter share a disk."""
    started = []

    def start(places, words, limits=None):
        port = free_port()
        for rank, place in enumerate(places):
            (tmp_path / place).mkdir(exist_ok=True)
            where = f"--rank {rank} --world-size {len(places)} --master 127.0.0.1:{port}"
            text = "import resource, sys\nfrom shoal.cli.entry import main\n"
            if limit := (limits or {}).get(rank):
                text += f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
            text += f"sys.argv = {['shoal', 'train', *words.split(), *where.split()]}\nsys.exit(main())\n"
            started.append(nursery.start(text, tmp_path / place, f"rank{rank}", OWN_RANK=str(rank)))
        return started[-len(places) :]

    yield start
    for program in started:
        program.send_signal(signal.SIGKILL)
        program.ended()


@pytest.fixture
def train(start):
    """Makes a run, or a part of it: the exit codes of the workers, and what each said."""

    def train(places, words, limits=None):
        workers = start(places, words, limits)
        said = [worker.ended(200)[1] for worker in workers]
        return [worker.returncode for worker in workers], said

    return train


def folder_on(parent, place):
    return RunFolder(parent / place / "runs" / "run")


def weights(parent, place="a"):
    return folder_on(parent, place).read_result()["weights_sha256"]


def on_one_disk(parent, strategy, workers, monkeypatch, launcher="threads"):
    """The weights of a run whose workers share a disk."""
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    flags = [*TINY.split(), *strategy.split(), "--launcher", launcher, "--workers", str(workers)]
    assert (
        main(["train", *flags, "--quiet", "--name", "run", "--runs-dir", str(parent / "one" / "runs")]) == 0
    )
    return weights(parent, "one")


def assert_complete(parent, places, expected):
    """Rank 0's folder has the result, and the events of every worker to their end."""
    folder = folder_on(parent, places[0])
    result = folder.read_result()
    assert (result["status"], result["steps"], result["weights_sha256"]) == ("completed", STEPS, expected)
    check_events(folder, result)
    for rank in range(len(places)):
        steps = {record["step"] for record in read_events(folder.events(rank), "step")}
        assert steps == set(range(STEPS))


def test_two_disks_make_the_same_run_as_one(train, tmp_path, monkeypatch):
    codes, said = train("ab", f"{NEW} {STRATEGIES['zero']}")
    assert codes == [0, 0], said
    assert "do not share a disk" in said[0]
    assert_complete(tmp_path, "ab", on_one_disk(tmp_path, STRATEGIES["zero"], 2, monkeypatch))
    for place in "ab":
        newest = checkpoint.latest(folder_on(tmp_path, place).checkpoints)
        assert newest.progress.step == STEPS
    assert not folder_on(tmp_path, "b").model.exists()


@pytest.mark.long
@pytest.mark.parametrize(("strategy", "lost"), [("ddp", "b"), ("zero", "a"), ("pipeline", "b")])
def test_after_the_loss_of_a_disk_the_run_goes_on_to_the_same_weights(
    train, tmp_path, monkeypatch, strategy, lost
):
    codes, said = train("ab", f"{NEW} {STRATEGIES[strategy]} --steps 7")
    assert codes == [0, 0], said
    shutil.rmtree(folder_on(tmp_path, lost).path)
    codes, said = train("ab", f"--resume runs/run --trust-code --steps {STEPS}")
    assert codes == [0, 0], said
    assert "lacked parts of runs/run/checkpoints/step-000007" in said[0]
    assert_complete(tmp_path, "ab", on_one_disk(tmp_path, STRATEGIES[strategy], 2, monkeypatch))


@pytest.mark.long
def test_three_disks_of_which_one_has_two_workers(train, tmp_path, monkeypatch):
    codes, said = train("aabc", f"{NEW} {STRATEGIES['zero']} --steps 7")
    assert codes == [0] * 4, said
    shutil.rmtree(folder_on(tmp_path, "b").path)
    shutil.rmtree(folder_on(tmp_path, "c").path)
    codes, said = train("aabc", "--resume runs/run --trust-code")
    assert codes == [2] * 4, said
    assert all("no machine here has rank2.safetensors (kept by rank 2 on" in each for each in said)
    assert "Traceback" not in "".join(said)


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["server", "rpc"])
def test_servers_and_stages_of_rpc_have_disks_too(train, tmp_path, monkeypatch, strategy):
    codes, said = train("ab", f"{NEW} --strategy {strategy} --steps 7")
    assert codes == [0, 0], said
    shutil.rmtree(folder_on(tmp_path, "b").path)
    codes, said = train("ab", f"--resume runs/run --trust-code --steps {STEPS}")
    assert codes == [0, 0], said
    workers, launcher = {"server": (1, "threads"), "rpc": (2, "processes")}[strategy]
    one = on_one_disk(tmp_path, f"--strategy {strategy}", workers, monkeypatch, launcher)
    assert weights(tmp_path) == one


@pytest.mark.long
@needs_nodes
def test_three_machines_with_a_disk_each_and_the_loss_of_one(tmp_path, monkeypatch, capsys, launching_here):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    words = f"{NEW} --model mlp {STRATEGIES['zero']}".replace("--model dying_save:net ", "").split()
    with nodes(3, tmp_path) as (cluster, hosts):
        start = ["launch", *hosts, "--workers", "1", "--", "shoal", "train"]
        for node in cluster.nodes:
            node.own(work)
        assert main([*start, *words, "--steps", "7"]) == 0
        cluster.nodes[1].own(work)
        assert main([*start, "--resume", "runs/run", "--steps", str(STEPS)]) == 0
        assert "rank 1 on node02 lacked parts" in capsys.readouterr().err
        result = RunFolder(cluster.nodes[0].path(work) / "runs" / "run").read_result()
    one = [
        "train",
        *words,
        "--workers",
        "3",
        "--group",
        "gloo",
        "--runs-dir",
        str(tmp_path / "one"),
        "--quiet",
    ]
    assert main(one) == 0
    assert result["weights_sha256"] == RunFolder(tmp_path / "one" / "run").read_result()["weights_sha256"]


@pytest.mark.long
@pytest.mark.parametrize("dying", [0, 1])
def test_a_kill_while_a_checkpoint_gets_its_name_leaves_the_old_one_whole(
    train, tmp_path, monkeypatch, dying
):
    """The others may have renamed theirs or not: of two disks one is enough, of neither the old one counts."""
    proof = tmp_path / "proof"
    fault = f"--model.step 6 --model.rank {dying} --model.proof {proof}"
    codes, said = train("ab", f"{NEW} {STRATEGIES['zero']} {fault}")
    assert codes[dying] == -signal.SIGKILL, said
    assert codes[1 - dying] == 2, said
    assert proof.exists()
    for place in "ab":
        assert checkpoint.verify(folder_on(tmp_path, place).checkpoints / "step-000003").progress.step == 3
    assert not (folder_on(tmp_path, "ab"[dying]).checkpoints / "step-000006").exists()
    codes, said = train("ab", "--resume runs/run --trust-code")
    assert codes == [0, 0], said
    assert_complete(tmp_path, "ab", on_one_disk(tmp_path, STRATEGIES["zero"], 2, monkeypatch))
    assert not list(folder_on(tmp_path, "a").path.rglob("*.tmp"))
    assert not list(folder_on(tmp_path, "b").path.rglob("*.tmp"))


@pytest.mark.long
def test_a_signal_to_one_machine_brings_all_events_and_the_result_to_rank_0(start, tmp_path):
    workers = start("ab", f"{NEW} {STRATEGIES['ddp']} --epochs 20000")
    wait_until(lambda: any(folder_on(tmp_path, "a").checkpoints.glob("step-*[0-9]")))
    workers[1].send_signal(signal.SIGINT)
    said = [worker.ended(100)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [130, 130], said
    folder = folder_on(tmp_path, "a")
    result = folder.read_result()
    assert (result["status"], result["stopped_by"]) == ("interrupted", signal.SIGINT)
    for rank in range(2):
        assert read_events(folder.events(rank))[-1]["event"] == "end"
        assert len(read_events(folder.events(rank), "step")) == result["steps"]


@pytest.mark.long
def test_a_run_folder_that_another_run_left_on_one_machine_is_refused_before_the_first_step(train, tmp_path):
    left = folder_on(tmp_path, "b").path
    left.mkdir(parents=True)
    (left / "config.toml").write_text("of another run")
    codes, said = train("aab", f"{NEW} {STRATEGIES['ddp']}")
    assert codes == [2] * 3
    assert all("rank 2 on" in each and "the run folder runs/run is not empty" in each for each in said), said
    assert not folder_on(tmp_path, "a").path.exists()
    assert os.listdir(left) == ["config.toml"]


@pytest.mark.long
def test_folders_of_two_runs_are_not_resumed_as_one(train, tmp_path):
    for name in ("first", "second"):
        codes, said = train("ab", f"{NEW} {STRATEGIES['ddp']} --steps 3")
        assert codes == [0, 0], said
        for place in "ab":
            folder_on(tmp_path, place).path.rename(tmp_path / f"{name}-{place}")
    for place, name in (("a", "first"), ("b", "second")):
        (tmp_path / f"{name}-{place}").rename(folder_on(tmp_path, place).path)
    codes, said = train("ab", f"--resume runs/run --trust-code --steps {STEPS}")
    assert codes == [2, 2]
    assert all("runs/run of rank 1 on" in each and "belongs to run" in each for each in said), said


@pytest.mark.long
def test_a_machine_that_cannot_make_the_folder_is_named(train, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "runs").write_text("a file, in place of the folder")
    codes, said = train("ab", f"{NEW} {STRATEGIES['ddp']}")
    assert codes == [2, 2]
    assert all("rank 1 on" in each and "cannot write the run folder runs/run" in each for each in said), said
    assert not folder_on(tmp_path, "a").path.exists()


@pytest.mark.long
def test_a_full_disk_on_one_machine_ends_the_run_on_all_and_keeps_the_old_checkpoint(train, tmp_path):
    """No file of rank 1 may become larger than its events at first are: they grow with every step."""
    codes, said = train("ab", f"{NEW} {STRATEGIES['ddp']} --epochs 20000", limits={1: 20_000})
    assert codes == [2, 2], said
    assert "rank 1 on" in said[0]
    assert "Traceback" not in "".join(said)
    steps = [
        {path.name for path in folder_on(tmp_path, place).checkpoints.glob("step-*[0-9]")} for place in "ab"
    ]
    assert steps[0] == steps[1] != set()
