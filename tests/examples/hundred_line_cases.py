"""The strategies of the package, on the problem of the programs in 100 lines; and how a worker runs either."""

import sys
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import single
from server_cases import bsp, strategy_of
from strategy_cases import STRATEGIES, Copy, copy_of, local, made, one_machines

from shoal import optim
from shoal.comm.alone import alone
from shoal.config.sections.model import CrossEntropyConfig
from shoal.config.sections.optimizer import AdamConfig
from shoal.data.dataset import Batch
from shoal.events.spans import HostClock, SpanRecorder
from shoal.models import build_loss
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.layout.whole import Whole
from shoal.strategies.pieces.whole_tensors import WholeTensors
from shoal.strategies.pipeline.cut import cut_by_name
from shoal.strategies.pipeline.pipeline import Pipelined
from shoal.strategies.pipeline.settings import PipelineConfig
from shoal.strategies.replicas.sync import Sync
from shoal.strategies.rpc.rpc import Rpc
from shoal.strategies.rpc.settings import RpcConfig
from shoal.strategies.strategy import Pause, Serving, Share
from shoal.strategies.tensor.divide import divide
from shoal.strategies.update import Update

FOLDER = Path(__file__).parents[2] / "examples" / "in_100_lines"
SAMPLES = 13
"""Of a batch: shares are uneven."""
LR = 0.01
DILOCO = {"every": 2, "outer_lr": 0.7, "outer_momentum": 0.9, "moments": "keep"}


def batches():
    return single.batches(samples=SAMPLES)


def pipelined(model, group):
    span, loss = SpanRecorder(HostClock()), CrossEntropyConfig()
    engine = build_engine("torch", model, loss, span)
    stages = cut_by_name(model, ["2"] if group.size == 2 else ["2", "4"])
    layout = Pipelined(model, stages, group, build_loss(loss), engine.autocast, span, PipelineConfig())
    return alone_with(layout)


def divided(model, group):
    span, loss = SpanRecorder(HostClock()), CrossEntropyConfig()
    parts = divide(model, group, {"0": "column", "2": "row"}, batches()[0][0][:2])
    engine = build_engine("torch", model, loss, span)
    return alone_with(Whole(model, build_loss(loss), engine, span, parts=parts))


def alone_with(layout):
    copy = Copy(layout, Update(layout, partial(optim.build, AdamConfig(lr=LR))))
    return made(lambda parts, config: Sync(parts), None, copy, alone())


def on_copies(make):
    return lambda model, group: make(copy_of(model, AdamConfig(lr=LR)), group)


REAL = {
    **{name: on_copies(STRATEGIES[name]) for name in ("naive", "ddp", "dp", "onecopy")},
    "zero": on_copies(STRATEGIES["zero 3, gathered"]),
    "local": on_copies(lambda copy, group: local(copy, group, **DILOCO)),
    "server": on_copies(lambda copy, group: strategy_of(group, bsp(), copy)),
    "rpc": on_copies(lambda copy, group: made(Rpc, RpcConfig(), copy, group)),
    "pipeline": pipelined,
    "tensor": divided,
}


def train_real(group, name):
    """All weights after the last step, on rank 0."""
    strategy = REAL[name](single.network(), group)
    if strategy.serves:
        strategy.serve(Serving())
    else:
        for batch in batches():
            inputs, labels = (each.tensor_split(strategy.data_size)[strategy.data_rank] for each in batch)
            strategy.step(Share([Batch(inputs, labels, len(labels))], SAMPLES, len(labels)), LR)
        strategy.consolidate()
        strategy.pause(Pause({}, is_end=True))
    whole = {
        name: each.clone() for name, each in WholeTensors(one_machines(strategy.pieces()), group, prefix="")
    }
    strategy.close()
    return {name.removeprefix("model."): each for name, each in whole.items() if name.startswith("model.")}


def seed_of(name, group):
    """Workers start alike although only one of them draws the right weights, where the program says so."""
    holder = {"pipeline": group.rank, "tensor": group.rank, "server": group.size - 1}.get(name, 0)
    return 0 if group.rank == holder else 1 + group.rank


@cache
def program(name):
    """A program, by its file: folders of tests have names such as `local`, and Python takes them for packages."""
    spec = spec_from_file_location(f"{FOLDER.name}_{name}", FOLDER / f"{name}.py")
    # RPC finds functions by the names of their modules.
    sys.modules[spec.name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train_program(group, name, make_optimizer=single.adam, **options):
    """The weights that this worker has after the last step."""
    model = single.network(seed_of(name, group))
    weights = program(name).train(group, model, batches(), make_optimizer, **options)
    return {name: each.detach().clone() for name, each in weights.items()}
