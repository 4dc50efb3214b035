"""What all tests share: repeatable examples, and GPU tests only where there is a GPU."""

import pytest
import torch
from hypothesis import settings

# `make test` draws the same examples in every run; `make test-explore` draws new ones and prints its seed.
# Neither has a deadline: an example that is slow because the machine is busy is not a failure.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.register_profile("explore", max_examples=1000, print_blob=True, deadline=None)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=gpu)
    items[:] = [item for item in items if item not in gpu]
