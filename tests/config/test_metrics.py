"""Names of metrics, and what early stopping may look at."""

import pytest

from shoal.config.read import read
from shoal.errors import ConfigError


def test_they_are_separated_by_commas():
    assert read(None, ["--metrics", "accuracy,top5,mine:recall"]).train.metrics == (
        "accuracy",
        "top5",
        "mine:recall",
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--metrics perplexty", "unknown metric 'perplexty': did you mean 'perplexity'"),
        ("--metrics top0", "unknown metric 'top0'"),
        ("--metrics top5,top5", "metrics top5 and top5 are both called top5"),
        ("--metrics a:recall,b:recall", "metrics a:recall and b:recall are both called recall"),
        ("--metrics mine:loss", "metric mine:loss has the name of one that every evaluation has"),
        ("--metrics mine:", "package.module:function"),
        ("--stop.patience 0 --validation 0.1", "stop.patience: expected an integer ≥ 1"),
        ("--stop.metric top5", "unknown --stop.metric 'top5'.*\n  Add it to --metrics: --metrics top5"),
        ("--stop.metric accuracy --stop.goal up", "stop.goal"),
    ],
)
def test_what_is_refused(flags, message):
    with pytest.raises(ConfigError, match=message):
        read(None, flags.split())


def test_a_metric_of_the_run_may_decide():
    config = read(None, ["--metrics", "top5,mine:recall", "--stop.metric", "recall", "--validation", "0.1"])
    assert config.stop.metric == "recall"
