"""Rows of features that several strategies refuse for the same reason. `config/combinations.py` lists all features."""

from collections.abc import Mapping

Row = Mapping[str, str]
"""The features that something cannot be combined with, and why; an empty text if the names say it."""


def refused(*features: str, why: str = "") -> Row:
    """A row in which all features have one reason."""
    return dict.fromkeys(features, why)


SHARES = refused(
    "--partition", "--balance", "--bottleneck share", why="it does not divide batches among workers"
)
OWN_ENGINES = refused("--engine tape", "--engine static")
"""Our engines keep graphs and parameters in memory of their own choice."""
DIVIDED_WEIGHTS: Row = {
    "--exchange": "it sums slices of the gradients itself",
    "--fault stale": "no worker has all weights to itself",
    **OWN_ENGINES,
}
DIVIDED_MODEL: Row = {
    **refused("--bottleneck", "--fault", why="conditions apply to a worker's gradients of whole batches"),
    "--balance": "",
    **OWN_ENGINES,
}
