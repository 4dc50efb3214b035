"""The code of strategies, codecs, pruning and memory techniques that pages show and experiments call."""

from shoal.codecs.build import build_codec
from shoal.codecs.codec import Form, Linear
from shoal.codecs.sparse import TopK
from shoal.memory.techniques import TECHNIQUES, MemoryVariant, single_variants
from shoal.memory.trial import try_each
from shoal.prune.channels.widths import rebuild
from shoal.prune.masks import keep_best
from shoal.strategies.ddp.distributed_data_parallel import DistributedDataParallel
from shoal.strategies.exchange.choice import Candidate, Choice, GroupCall, received_bytes
from shoal.strategies.exchange.compressed import Compressed
from shoal.strategies.guard import ROW
from shoal.strategies.pieces.state import load_weights
from shoal.strategies.pipeline import schedules
from shoal.strategies.pipeline.schedule import ALL, Action, ActionKind, Row
from shoal.strategies.pipeline.schedules import FORMULAS
from shoal.strategies.pipeline.schedules import build as build_schedule
from shoal.strategies.pipeline.timing import UNIT_TIMES, StageTimes, TimedAction, Timeline, timeline
from shoal.strategies.rpc.rpc import Rpc
from shoal.strategies.server.ledger import Ledger
from shoal.strategies.tensor import linear

__all__ = [
    "ALL",
    "FORMULAS",
    "ROW",
    "TECHNIQUES",
    "UNIT_TIMES",
    "Action",
    "ActionKind",
    "Candidate",
    "Choice",
    "Compressed",
    "DistributedDataParallel",
    "Form",
    "GroupCall",
    "Ledger",
    "Linear",
    "MemoryVariant",
    "Row",
    "Rpc",
    "StageTimes",
    "TimedAction",
    "Timeline",
    "TopK",
    "build_codec",
    "build_schedule",
    "keep_best",
    "linear",
    "load_weights",
    "rebuild",
    "received_bytes",
    "schedules",
    "single_variants",
    "timeline",
    "try_each",
]
