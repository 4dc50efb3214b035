"""Settings as plain data: another process gets the same ones, and parses nothing."""

import json

import pytest

from shoal.config import conditions
from shoal.config.read import read
from shoal.config.write import from_plain, to_plain

CONDITIONS = (
    "--bottleneck rank=1,delay=0-40ms;rank=0,share=0.3 --link 0-1:100mbit,5ms --fault rank=1,gradient=flip"
)
FLAGS = [
    "",
    "--model mlp --model.hidden 32,16 --optimizer sgd --lr 1e-5 --train.clip_norm 0.1 --threads 3",
    "--model package.module:net --model.width 3 --model.name_of_layer x --loss package.module:loss",
    "--strategy ddp --workers 3 --exchange robust:median --partition label",
    "--strategy naive --workers 2 --exchange stages:0=all_reduce,0.5=by:ring --output.name Größe",
    f"--strategy naive --workers 2 {CONDITIONS}",
]


@pytest.mark.parametrize("flags", FLAGS)
def test_what_arrives_is_what_was_sent(flags):
    config = read(None, flags.split())
    arrived = from_plain(json.loads(json.dumps(to_plain(config))))
    assert arrived == config
    assert repr(arrived) == repr(config)  # the types of the values, too


def test_conditions_arrive_parsed_with_the_text_that_was_written(monkeypatch):
    config = read(None, FLAGS[-1].split())
    sent = json.dumps(to_plain(config))

    def refuse(*arguments):
        raise AssertionError("parsed again")

    for kind in (conditions.Bottleneck, conditions.Link, conditions.Fault):
        monkeypatch.setattr(kind, "from_text", refuse)
    launch = from_plain(json.loads(sent)).launch
    assert launch.link[0].ends == (0, 1)
    assert [str(each) for each in launch.bottleneck] == ["rank=1,delay=0-40ms", "rank=0,share=0.3"]
