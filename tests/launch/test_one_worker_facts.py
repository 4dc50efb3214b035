"""What workers must agree on, and what is their own affair."""

from shoal.config.read import read
from shoal.events.folder import RunFolder
from shoal.launch.one_worker import facts_of


def facts(flags, resumed=None):
    return facts_of(read(None, flags.split()), resumed)


def test_python_and_all_that_decides_the_result():
    found = facts("--seed 3 --lr 0.5")
    assert "python" in found
    assert (found["seed"], found["optimizer.lr"]) == ("3", "0.5")
    assert facts("--seed 3") != facts("--seed 4")
    assert facts("", RunFolder(None)) != facts("")


def test_where_a_worker_computes_and_keeps_its_files_may_differ():
    own = "--device cpu --threads 3 --runs-dir elsewhere --name mine --trace true"
    assert facts(own) == facts("")


def test_threads_must_agree_where_bits_depend_on_them():
    invariant = "--reduction invariant --micro-batch 8"
    assert facts(f"{invariant} --threads 2") != facts(invariant)
