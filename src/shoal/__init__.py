"""Shoal: distributed deep learning on PyTorch that is complete, readable, correct and fast.

Importing `shoal` is fast and does not import torch. The public names below are imported at their first use.
(`__init__.pyi` declares them for type checkers.)
"""

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

_LAZY = {
    "train": "shoal.api.train",
    "fit": "shoal.api.fit",
    "compare": "shoal.api.compare",
    "evaluate": "shoal.api.saved",
    "load": "shoal.api.saved",
    "report": "shoal.api.runs",
    "runs": "shoal.api.runs",
    "memory": "shoal.api.memory",
    "prune": "shoal.api.prune",
    "notebook_launch": "shoal.api.notebook",
    "Callback": "shoal.api.callbacks",
    "Metric": "shoal.models.metrics",
    "ReplicaSync": "shoal.strategies.replicas.user_sync",
    "join": "shoal.comm.join",
    "DistributedDataParallel": "shoal.strategies.ddp.distributed_data_parallel",
    "OneCopy": "shoal.strategies.onecopy.library",
    "ParameterServer": "shoal.strategies.server.library",
    "Pipeline": "shoal.strategies.pipeline.library",
    "zero": "shoal.strategies.zero.library",
    "SyncBatchNorm": "shoal.strategies.replicas.sync_batchnorm",
    "tensor_parallel": "shoal.strategies.tensor.divide",
    "average_gradients": "shoal.strategies.library.average_gradients",
    "partition": "shoal.data.division.subsets",
    "DatasetPartitioner": "shoal.data.division.subsets",
    "DistributedSampler": "shoal.data.division.samplers",
    "PartitionSampler": "shoal.data.division.samplers",
    "RandomSampler": "shoal.data.division.samplers",
    "check_loader": "shoal.data.division.samplers",
}
"""Public names and the modules that hold them, imported when they are first asked for."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'shoal' has no attribute '{name}'")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted((*_LAZY, "__version__"))


class _Package(ModuleType):
    """Keeps `shoal.compare`, `report`, `memory` and `prune` functions, although folders have the same names.

    An import of `shoal.compare.table` would set the attribute `compare` to the folder. Without that attribute,
    `from shoal.compare import table` works, and `import shoal.compare.table as table` does not.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _LAZY or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
