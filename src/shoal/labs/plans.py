"""What the plans of several labs have in common: the fewest workers, and the seeds of repeated runs."""

from shoal.errors import ConfigError


def at_least_two(workers: int) -> None:
    """Refuse a lab about workers that exchange something with fewer than two of them."""
    if workers < 2:
        raise ConfigError(f"this lab needs at least 2 workers, got --workers {workers}", "Try --workers 2.")


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """The seeds of repeated runs.

    >>> seeds_from(5, 3)
    (5, 6, 7)
    """
    return tuple(range(first, first + count))
