"""Malformed arguments of public functions, classes and methods: an error of ours, never an inner one or silence."""

import inspect
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shoal
from shoal.comm.group import Group
from shoal.config.arguments import checks_arguments
from shoal.errors import ShoalError

NAN = math.nan
DATA = TensorDataset(torch.arange(10.0), torch.arange(10) % 2)
BAD = [
    None,
    "x",
    "",
    "3",
    NAN,
    math.inf,
    -1,
    0,
    2.5,
    10**30,
    True,
    [],
    [NAN],
    {},
    object(),
    torch.ones(2),
    torch.ones(2, device="meta"),
    torch.ones((), device="meta"),
]


def net():
    return nn.Sequential(nn.Linear(2, 2))


def lazy():
    return nn.Sequential(nn.LazyLinear(2))


def on_meta():
    return net().to("meta")


def sgd(params):
    return torch.optim.SGD(params, lr=0.1)


def group():
    return shoal.join()


def entered(method):
    """A context manager as a function that enters and leaves it."""

    def enter(**given):
        with method(**given):
            pass

    return enter


def sampler():
    return shoal.DistributedSampler(DATA, 2, 0)


def wrapped():
    return shoal.DistributedDataParallel(net())


PLACE = {"dataset": DATA, "num_replicas": 2, "rank": 0}
ONE = torch.ones(4)
CALLS = {
    "join": (lambda: shoal.join, {"kind": "auto", "limit_s": 5, "timeout_s": 5, "facts": None}),
    "DistributedDataParallel": (
        lambda: shoal.DistributedDataParallel,
        {
            "module": net(),
            "group": None,
            "output_device": None,
            "exchange": None,
            "unused": "zero",
            "broadcast_buffers": True,
            "init_sync": True,
            "bucket_cap_mb": 25,
            "find_unused_parameters": False,
            "static_graph": False,
            "limit_s": 5,
        },
    ),
    "batch": (lambda: entered(wrapped().batch), {"num_samples": 3}),
    "wrapper.join": (lambda: entered(wrapped().join), {"divide_by_initial_world_size": True, "enable": True}),
    "register_comm_hook": (lambda: wrapped().register_comm_hook, {"state": None, "hook": print}),
    "Pipeline": (
        lambda: shoal.Pipeline,
        {
            "module": net(),
            "group": None,
            "loss": nn.MSELoss(),
            "schedule": "gpipe",
            "microbatches": 2,
            "cut": (),
            "example": None,
            "recompute": False,
        },
    ),
    "zero": (
        lambda: shoal.zero,
        {
            "model": net(),
            "make_optimizer": sgd,
            "stage": 1,
            "group": None,
            "unit_mib": 1,
            "unit_of": None,
            "unused": "zero",
            "offload": "none",
        },
    ),
    "ParameterServer": (
        lambda: shoal.ParameterServer,
        {
            "model": net(),
            "make_optimizer": sgd,
            "mode": "asp",
            "servers": 1,
            "staleness": None,
            "group": None,
        },
    ),
    "OneCopy": (
        lambda: shoal.OneCopy,
        {"model": net(), "make_optimizer": sgd, "group": None, "unused": "zero"},
    ),
    "SyncBatchNorm": (
        lambda: shoal.SyncBatchNorm,
        {"num_features": 4, "eps": 1e-5, "momentum": 0.1, "affine": True, "track_running_stats": True},
    ),
    "convert_sync_batchnorm": (
        lambda: shoal.SyncBatchNorm.convert_sync_batchnorm,
        {"module": net(), "group": None},
    ),
    "tensor_parallel": (
        lambda: shoal.tensor_parallel,
        {"module": net(), "group": group(), "plan": {}},
    ),
    "average_gradients": (
        lambda: shoal.average_gradients,
        {"model": net(), "group": None, "num_samples": 1},
    ),
    "partition": (
        lambda: shoal.partition,
        {"dataset": DATA, "sizes": None, "workers": 2, "by": "random", "seed": 0, "allow_empty": False},
    ),
    "use": (lambda: shoal.partition(DATA, workers=2).use, {"rank": 0}),
    "DatasetPartitioner": (
        lambda: shoal.DatasetPartitioner,
        {"dataset": DATA, "sizes": [0.5, 0.5], "seed": 1},
    ),
    "DistributedSampler": (
        lambda: shoal.DistributedSampler,
        {**PLACE, "shuffle": True, "seed": 0, "drop_last": False},
    ),
    "PartitionSampler": (
        lambda: shoal.PartitionSampler,
        {**PLACE, "by": "random", "shuffle": True, "seed": 0, "sizes": None, "allow_empty": False},
    ),
    "RandomSampler": (lambda: shoal.RandomSampler, {**PLACE, "seed": 0, "draws": 5}),
    "set_epoch": (lambda: sampler().set_epoch, {"epoch": 1}),
    "step_sizes": (lambda: sampler().step_sizes, {"batch_size": 2}),
    "check_loader": (
        lambda: shoal.check_loader,
        {"loader": DataLoader(DATA, sampler=sampler()), "num_replicas": 2},
    ),
    "all_reduce": (lambda: group().all_reduce, {"buffer": ONE, "op": "sum"}),
    "reduce_scatter": (lambda: group().reduce_scatter, {"piece": ONE, "whole": ONE.clone(), "op": "max"}),
    "all_gather": (lambda: group().all_gather, {"whole": ONE, "piece": ONE.clone()}),
    "all_to_all": (lambda: group().all_to_all, {"out": ONE, "whole": ONE.clone()}),
    "broadcast": (lambda: group().broadcast, {"buffer": ONE, "root": 0}),
    "reduce": (lambda: group().reduce, {"buffer": ONE, "root": 0, "op": "sum"}),
    "gather": (lambda: group().gather, {"whole": ONE, "piece": ONE.clone(), "root": 0}),
    "scatter": (lambda: group().scatter, {"piece": ONE, "whole": ONE.clone(), "root": 0}),
    "send": (lambda: group().send, {"tensor": ONE, "to": 0}),
    "recv": (lambda: group().recv, {"tensor": ONE, "sender": 0}),
    "split": (lambda: group().split, {"ranks": [0]}),
    "empty": (lambda: group().empty, {"numel": 3, "dtype": torch.float32}),
    "views_of_all": (lambda: group().views_of_all, {"tensor": ONE}),
    "common": (lambda: group().common, {"numel": 3, "dtype": torch.float32}),
    "beat": (lambda: group().beat, {"busy_s": 1}),
}
"""Public calls in a world of one, with arguments that are right unless the world is too small for the call."""
CASES = [(call, argument) for call, (_, arguments) in CALLS.items() for argument in arguments]


@pytest.mark.parametrize(("call", "argument"), CASES)
def test_no_argument_ends_in_an_inner_error(call, argument):
    make, arguments = CALLS[call]
    function = make()
    for value in BAD:
        given = {**arguments, argument: value}
        try:
            function(**given)
        except ShoalError:
            continue
        except Exception as error:
            raise AssertionError(f"{call}({argument}={value!r}): {type(error).__name__}: {error}") from error


REFUSED = [
    *(("join", name, value) for name in ("limit_s", "timeout_s") for value in (0, -1, NAN, math.inf, "x")),
    ("join", "kind", 5),
    ("join", "facts", 5),
    *(("DistributedDataParallel", "limit_s", value) for value in (NAN, -1, "x")),
    *(("DistributedDataParallel", "bucket_cap_mb", value) for value in (0, -1, NAN, math.inf, "x")),
    *(("DistributedDataParallel", "module", value) for value in (None, "x", on_meta(), lazy())),
    ("DistributedDataParallel", "unused", "x"),
    ("DistributedDataParallel", "exchange", 5),
    ("DistributedDataParallel", "find_unused_parameters", "no"),
    *(("batch", "num_samples", value) for value in (None, NAN, -1, 2.5, "x")),
    ("wrapper.join", "enable", "x"),
    ("Pipeline", "loss", None),
    ("Pipeline", "module", on_meta()),
    ("OneCopy", "model", on_meta()),
    ("ParameterServer", "model", on_meta()),
    ("zero", "unit_mib", NAN),
    *(("SyncBatchNorm", "num_features", value) for value in (0, -1, 2.5)),
    *(("SyncBatchNorm", "eps", value) for value in (NAN, -1, "x", None)),
    *(("SyncBatchNorm", "momentum", value) for value in (NAN, -1, 2, "x")),
    ("convert_sync_batchnorm", "module", None),
    *(("average_gradients", "model", value) for value in ("x", None, on_meta())),
    *(("average_gradients", "num_samples", value) for value in (NAN, -1, "x")),
    *(("partition", "workers", value) for value in (0, -1, 2.5, "2")),
    *(("partition", "sizes", value) for value in (5, "x", [NAN, 1.0], ["a", "b"])),
    ("partition", "seed", "x"),
    *(("DistributedSampler", "num_replicas", value) for value in (2.5, 0, "2", True)),
    *(("DistributedSampler", "rank", value) for value in (0.5, 2, -1, "0")),
    *(("DistributedSampler", "seed", value) for value in ("x", 2.5, None)),
    ("DistributedSampler", "shuffle", "no"),
    *(("RandomSampler", "draws", value) for value in (2.5, 0)),
    *(("set_epoch", "epoch", value) for value in ("x", None, 2.5, NAN)),
    *(("step_sizes", "batch_size", value) for value in (0, -1, 2.5)),
    *((call, "buffer", value) for call in ("all_reduce", "broadcast", "reduce") for value in (None, [1])),
    *(("broadcast", "root", value) for value in (None, 0.0, "0")),
    *(("beat", "busy_s", value) for value in (-1, NAN, "x", None)),
]


@pytest.mark.parametrize(("call", "argument", "value"), REFUSED)
def test_it_is_refused_with_the_argument_named(call, argument, value):
    make, arguments = CALLS[call]
    function = make()
    with pytest.raises(ShoalError):
        function(**{**arguments, argument: value})


@pytest.mark.parametrize(
    "call",
    [
        lambda: shoal.train(None),
        lambda: shoal.train(5),
        lambda: shoal.train(""),
        lambda: shoal.train(callbacks=5),
        lambda: shoal.train(resume=5),
        lambda: shoal.train(progress="no"),
        lambda: shoal.notebook_launch(None),
        lambda: shoal.notebook_launch(print, workers=2.5),
        lambda: shoal.notebook_launch(print, workers="2"),
        lambda: shoal.notebook_launch(print, launcher="x"),
        lambda: shoal.fit(None, DATA),
        lambda: shoal.fit(on_meta(), DATA),
        lambda: shoal.fit(net(), DATA, metrics=5),
        lambda: shoal.fit(net(), DATA, strategy=5),
        lambda: shoal.fit(net(), DATA, callbacks=5),
        lambda: shoal.check_loader(None, 2),
        lambda: shoal.OneCopy(net(), None),
        lambda: shoal.ParameterServer(None, sgd),
        lambda: shoal.tensor_parallel(net(), None),
    ],
)
def test_a_run_does_not_start(call, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ShoalError):
        call()
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr().err == ""


def test_a_wrong_argument_is_a_type_error_and_a_value_error():
    for standard in (TypeError, ValueError, ShoalError):
        with pytest.raises(standard):
            group().all_reduce([1])
        with pytest.raises(standard):
            sampler().set_epoch("x")


def test_values_that_torch_takes_are_taken():
    order = list(shoal.DistributedSampler(DATA, 2, 0, seed=3))
    numbers = shoal.DistributedSampler(
        DATA, np.int64(2), np.int32(0), shuffle=np.bool_(True), seed=np.int64(3), drop_last=0
    )
    assert list(numbers) == order
    numbers.set_epoch(torch.tensor(4))
    assert (numbers.epoch, type(numbers.epoch)) == (4, int)
    assert len(shoal.DistributedSampler([1, 2, 3], 2, 0, seed=2**70)) == 2
    assert len(shoal.DistributedSampler(range(4), 2, 0, seed=-5)) == 2
    model = shoal.DistributedDataParallel(
        net(), None, None, bucket_cap_mb=np.float32(0.5), find_unused_parameters=1, static_graph=False
    )
    assert model.find_unused_parameters is True
    with model.batch(torch.tensor(4)), model.join(True, True, False):
        pass
    assert shoal.SyncBatchNorm(4, 1e-3, None, False, False, None).momentum is None
    assert shoal.SyncBatchNorm(4, eps=0, dtype=torch.float64).weight.dtype == torch.float64
    assert [len(part) for part in shoal.partition(DATA, np.array([4, 6]))] == [4, 6]
    assert [len(part) for part in shoal.partition(DATA, torch.tensor([0.5, 0.5]))] == [5, 5]
    assert group().empty(np.int64(3), torch.float64, "cpu").shape == (3,)


def test_a_missing_or_unknown_argument_is_pythons_own_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'sed'"):
        shoal.DistributedSampler(DATA, 2, 0, sed=1)
    with pytest.raises(TypeError, match="required"):
        shoal.SyncBatchNorm()


def test_a_checked_function_keeps_its_name_its_signature_and_its_documentation():
    assert list(inspect.signature(shoal.DistributedSampler.__init__).parameters)[1:] == [
        "dataset", "num_replicas", "rank", "shuffle", "seed", "drop_last",
    ]  # fmt: skip

    def work(group: Group, *parts: int, by: float = 1.0, **options: int) -> str:
        """Its sentence."""
        return f"{parts} {by} {options}"

    checked = checks_arguments(work)
    assert (checked.__name__, checked.__doc__) == ("work", "Its sentence.")
    assert checked(group(), 1, 2, by=3, more=4) == "(1, 2) 3.0 {'more': 4}"
    with pytest.raises(ShoalError, match="by=…"):
        checked(group(), by="x")
