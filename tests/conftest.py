"""What all tests share: repeatable examples, the long tests, and GPU tests only where there is a GPU."""

import gc
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

# `make test` draws the same examples in every run; `make test-explore` draws new ones and prints its seed.
# Neither has a deadline: an example that is slow because the machine is busy is not a failure.
settings.register_profile("repeatable", max_examples=40, derandomize=True, database=None, deadline=None)
settings.register_profile("explore", max_examples=1000, print_blob=True, deadline=None)
settings.load_profile("repeatable")

# `nohup` and background jobs of a shell ignore these; processes that the tests start, and interrupt, would inherit it.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# GPU images may lack the server of the live page, and what reads YAML.
collect_ignore = [] if find_spec("uvicorn") else ["browser/test_live_page.py", "watch/test_server.py"]
collect_ignore += (
    [] if find_spec("yaml") else ["cli/test_render.py", "launch/rendered", "processes/test_rendered.py"]
)

LONG = (
    "cli/test_bench.py",
    "cli/test_compare.py",
    "contracts/test_strategy_rpc.py",
    "faults/test_suite.py",
    "labs/check/sandbox/test_worker.py",
    "labs/check/test_solution.py",
    "labs/lab1/test_lab.py",
    "labs/lab2/test_lab.py",
    "labs/lab2/test_solution.py",
    "labs/lab3/test_lab.py",
    "labs/lab3/test_solution.py",
    "labs/lab4/test_check.py",
    "labs/lab4/test_lab.py",
    "labs/lab4/test_solution.py",
    "labs/optimise/test_lab.py",
    "labs/student/experiments/test_autograd.py",
    "labs/student/experiments/test_lab1.py",
    "labs/student/experiments/test_lab2.py",
    "labs/student/experiments/test_lab3.py",
    "labs/student/experiments/test_lab4.py",
    "launch/process/test_processes.py",
    "processes/test_examples.py",
    "processes/test_faults.py",
    "processes/test_group_faults.py",
    "processes/test_invariant.py",
    "processes/test_launch.py",
    "processes/test_local.py",
    "processes/test_pipeline.py",
    "processes/test_programs.py",
    "processes/test_prune.py",
    "processes/test_rpc.py",
    "processes/test_run_folder.py",
    "processes/test_server.py",
    "processes/test_strangers.py",
    "processes/test_tensor_faults.py",
    "processes/test_zero.py",
    "verify/test_reference_correct.py",
)
"""Files whose tests take seconds each, mostly waiting for real processes: `make test-long` runs them."""
LONG_LIMIT_S = 300
"""After this a long test has hung. Some take half a minute alone, and four times that on a busy machine."""


@pytest.fixture(autouse=True, scope="session")
def templates() -> Iterator[None]:
    """Worker processes of all tests are copies of few templates: each loads torch once."""
    from shoal.launch.process.template import keeping_templates

    with keeping_templates():
        yield


@pytest.fixture(autouse=True)
def forget_written_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that a test wrote and imported is gone after it: another test may write one of the same name."""
    last = next(reversed(sys.modules))
    yield
    written = str(tmp_path_factory.getbasetemp())
    for name in [*takewhile(lambda name: name != last, reversed(sys.modules))]:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(written):
            del sys.modules[name]


@pytest.fixture
def svg_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures without their PNG and PDF, which take as long again: for tests that read the SVG."""
    from shoal.report import canvas

    saved = canvas.saved

    def in_one_form(figure: Any, kind: str, **options: Any) -> bytes:
        return saved(figure, kind, **options) if kind == "svg" else b""

    monkeypatch.setattr(canvas, "saved", in_one_form)


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of comparisons and runs take a second each; tests of the figures and of `shoal report` draw them."""
    from shoal.report.canvas import Drawing

    empty = Drawing(b"", b"", "<svg/>", "<svg/>")
    for module, losses in (("comparison_report", "loss_figure"), ("run_report", "training_figure")):
        for figure in (losses, "time_figure"):
            monkeypatch.setattr(import_module(f"shoal.compare.{module}"), figure, lambda *_: empty)


def pytest_collection_finish() -> None:
    """Take the tests themselves out of the garbage collector, which would look through all ten thousand each time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    long = {Path(__file__).parent / file for file in LONG}
    for item in items:
        if item.path in long:
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_LIMIT_S))
    if torch.cuda.is_available():
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    config.hook.pytest_deselected(items=gpu)
    items[:] = [item for item in items if item not in gpu]
