"""Stand-ins for packages that draw curves, show progress or write logs, and are not installed here."""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, final
from unittest.mock import MagicMock

HARMLESS = frozenset(
    [
        "matplotlib",
        "seaborn",
        "plotly",
        "visdom",
        "tqdm",
        "rich",
        "prettytable",
        "pandas",
        "tensorboardX",
        "wandb",
        "swanlab",
        "loguru",
        "torchsummary",
        "torchinfo",
        "thop",
        "psutil",
        "pynvml",
        "GPUtil",
    ]
)
"""Packages whose work no check asks for."""


def install() -> None:
    """Let these packages be imported where they are missing: they do nothing."""
    sys.meta_path.append(_Missing())


@final
class _Missing(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A stand-in for a module that nothing else has found."""
        if fullname.partition(".")[0] not in HARMLESS:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> Any:
        """A module whose every name does nothing; `tqdm` gives back what it is given."""
        made = MagicMock(name=spec.name)
        made.__path__, made.__spec__, made.__file__ = [], spec, ""
        if spec.name.startswith("tqdm"):
            made.tqdm = made.side_effect = lambda given=None, *_, **__: given
            made.trange = lambda *given, **_: range(*given)
        return made

    def exec_module(self, module: Any) -> None:
        """Nothing is in it."""
