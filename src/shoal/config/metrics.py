"""The names of metrics, and how their values are written. It does not import torch."""

import re
from collections.abc import Iterable, Mapping

from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, unknown

ALWAYS = ("loss", "accuracy")
"""Every evaluation has these; accuracy only where labels are classes."""
EXAMPLES = (*ALWAYS, "top5", "perplexity")


def label_of(name: str) -> str:
    """What a metric is called in results and tables: its name, or the name of the user's function.

    >>> label_of("top5"), label_of("mine.metrics:recall")
    ('top5', 'recall')
    """
    return name.rpartition(":")[2].rpartition(".")[2]


def top_of(name: str) -> int | None:
    """The k of a metric `topk`; None for any other.

    >>> top_of("top5"), top_of("topology"), top_of("top0")
    (5, None, None)
    """
    found = re.fullmatch(r"top([1-9][0-9]{0,8})", name)
    return int(found[1]) if found else None


def check_metric_names(names: Iterable[str]) -> None:
    """Refuse a name that no metric has, and two metrics whose values would have the same name."""
    taken: dict[str, str] = {}
    for name in names:
        if ":" in name:
            Custom(name=name)
            if label_of(name) in ALWAYS:
                raise ConfigError(
                    f"metric {name} has the name of one that every evaluation has", "Rename the function."
                )
        elif name not in EXAMPLES and top_of(name) is None:
            raise ConfigError(
                unknown("metric", name, EXAMPLES),
                "topK counts a label among the K best; for one of your own, write package.module:function.",
            )
        label = label_of(name)
        if label in taken:
            raise ConfigError(f"metrics {taken[label]} and {name} are both called {label}", "Leave one out.")
        taken[label] = name


def in_words(label: str, value: float) -> str:
    """The value of a metric with its unit.

    >>> in_words("top5", 0.987), in_words("accuracy", 0.5), in_words("perplexity", 3.14159)
    ('98.70 %', '50.00 %', '3.1416')
    """
    is_fraction = label == "accuracy" or top_of(label) is not None
    return f"{100 * value:.2f} %" if is_fraction else f"{value:.4f}"


def list_in_words(values: Mapping[str, float]) -> str:
    """Several metrics on one line.

    >>> list_in_words({"top5": 0.987, "perplexity": 3.14159})
    'top5 98.70 %, perplexity 3.1416'
    """
    return ", ".join(f"{label} {in_words(label, value)}" for label, value in values.items())
