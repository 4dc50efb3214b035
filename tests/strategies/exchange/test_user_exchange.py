"""A user's own exchange: found, called with its options, and named in the error when it fails."""

import pytest
import torch

from shoal.comm.threads.group import ThreadGroup, run_threads
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, MemberError
from shoal.strategies.buckets.bucket import Bucket
from shoal.strategies.exchange.user_exchange import load_user_exchange

MODULE = """
import torch

def scaled(group, bucket, factor=1.0):
    work = group.all_reduce(bucket)
    work.wait()
    bucket *= factor

def underway(group, bucket):
    return group.all_reduce(bucket)

def wrong(group, bucket):
    raise KeyError("bucket 7")

def late_trouble(group, bucket):
    class Work:
        def wait(self):
            raise OSError("the line is dead")
        def done(self):
            return False
    return Work()

def gives_the_sum(group, bucket):
    return bucket

class Counting:
    tolerates = 1
    def __init__(self, start=0):
        self.calls = start
    def __call__(self, group, bucket):
        self.calls += 1
        bucket.fill_(self.calls)

class Uncallable:
    pass

def odd(group, bucket):
    pass
odd.precision = "half"

PI = 3.14
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "exchanges_of_mine.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield
    import sys

    sys.modules.pop("exchanges_of_mine", None)


def own(name, **options):
    return load_user_exchange(Custom(name=f"exchanges_of_mine:{name}", options=tuple(options.items())))


def result(exchange, size=2):
    def work(group):
        bucket = torch.full((3,), float(group.rank + 1))
        exchange(group, Bucket.of("bucket", bucket)).wait()
        return bucket

    return run_threads(size, work)[0]


def test_options_arrive_by_their_names():
    assert result(own("scaled", factor=2.0)).tolist() == [6.0, 6.0, 6.0]


def test_a_work_is_waited_for():
    assert result(own("underway")).tolist() == [3.0, 3.0, 3.0]


def test_a_class_is_made_once_and_remembers():
    counting = own("Counting", start=4)
    assert counting.tolerates == 1
    (alone,) = ThreadGroup.world(1)
    bucket = torch.zeros(1)
    for calls in (5, 6):
        counting(alone, Bucket.of("bucket", bucket)).wait()
        assert bucket.item() == calls


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("wrong", "exchange exchanges_of_mine:wrong raised KeyError: 'bucket 7'"),
        ("late_trouble", "exchange exchanges_of_mine:late_trouble raised OSError: the line is dead"),
    ],
)
def test_what_it_raises_is_reported_with_its_name_and_its_line(name, sentence):
    (alone,) = ThreadGroup.world(1)
    with pytest.raises(RuntimeError, match=sentence) as raised:
        own(name)(alone, Bucket.of("bucket", torch.zeros(3))).wait()
    assert raised.traceback[-1].path.name == "exchanges_of_mine.py"


def test_a_worker_that_is_gone_is_not_the_users_fault():
    first, second = ThreadGroup.world(2)
    second.close()
    with pytest.raises(MemberError, match="rank 1 finished earlier"):
        own("underway")(first, Bucket.of("bucket", torch.zeros(3))).wait()


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("scaled", {"facto": 2.0}, "cannot be called with facto=2.0"),
        ("Counting", {"begin": 2}, "cannot be called with begin=2"),
        ("PI", {}, "is of type float, and cannot be called"),
        ("Uncallable", {}, "is a class whose objects cannot be called"),
        ("odd", {}, "declares precision = 'half': expected dtype"),
    ],
)
def test_what_cannot_work_is_refused_before_it_is_called(name, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        own(name, **options)


def test_a_result_that_is_returned_instead_of_written_is_refused():
    (alone,) = ThreadGroup.world(1)
    with pytest.raises(ConfigError, match="returned a value of type Tensor, expected a Work or None"):
        own("gives_the_sum")(alone, Bucket.of("bucket", torch.zeros(3)))
