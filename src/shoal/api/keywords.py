"""Keywords of `shoal.train` and its relatives, for editors. Made by tools/keywords.py from the settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

# fmt: off
# ruff: noqa: D101, E501

class DataSection(TypedDict, total=False):
    name: Literal['digits', 'alice', 'mnist', 'fashion-mnist', 'cifar10', 'synthetic', 'files']
    samples: int | None
    validation: float
    block_size: int
    dir: str
    augment: bool
    task: Literal['classification', 'regression', 'text']
    shape: Sequence[int]
    classes: int
    seed: int
    path: str
    loaders: int
    size: int | None
    dtype: Literal['uint16', 'uint32']
    outputs: int | None


class ModelSection(TypedDict, total=False):
    name: Literal['linear', 'mlp', 'lenet', 'resnet18', 'transformer']
    hidden: Sequence[int]
    width: int
    norm: Literal['batch', 'group']
    layers: int
    heads: int


class LossSection(TypedDict, total=False):
    name: Literal['cross_entropy', 'mse', 'mae']
    smoothing: float


class OptimizerSection(TypedDict, total=False):
    name: Literal['gd', 'sgd', 'adam', 'adamw']
    lr: float
    fast: bool
    momentum: float
    nesterov: bool
    weight_decay: float
    beta1: float
    beta2: float
    eps: float


class ScheduleSection(TypedDict, total=False):
    name: Literal['constant', 'step', 'cosine']
    warmup: int
    every: int
    factor: float
    floor: float


class PipelineSection(TypedDict, total=False):
    schedule: Literal['sequential', 'gpipe', '1f1b', 'zero-bubble', 'async'] | str | Callable[..., Any]
    microbatches: int
    cut: Sequence[str]
    weight_gradients: Literal['each', 'once']
    recompute: bool


class TensorSection(TypedDict, total=False):
    plan: str


class ExchangeSection(TypedDict, total=False):
    name: Literal['all_reduce', 'by', 'robust', 'compressed', 'stages']
    algorithm: Literal['central', 'reduce_broadcast', 'all_gather_sum', 'reduce_scatter_all_gather', 'ring', 'tree', 'halving_doubling']
    rule: Literal['median', 'trimmed_mean', 'krum'] | str | Callable[..., Any]
    bad: int
    codec: Literal['none', 'fp16', 'bf16', 'int8', 'int4', 'qsgd', 'terngrad', 'sign', 'onebit', 'topk', 'randomk', 'threshold', 'average', 'dgc', 'powersgd', 'auto'] | str | Callable[..., Any]
    candidates: Sequence[str]
    feedback: bool | None
    warmup: int
    layers: Sequence[str] | str
    ratio: float | None
    rank: int | None
    bits: int | None
    block: int | None
    threshold: float | None
    decay: float | None
    momentum: float | None
    clip: float | None
    vote: bool | None
    plan: Sequence[str]


class PartitionSection(TypedDict, total=False):
    name: Literal['global', 'sampling', 'random', 'contiguous', 'hash', 'stratified', 'label', 'dirichlet', 'speed']
    labels_per_worker: int | None
    alpha: float
    speeds: Sequence[float]


class PruneSection(TypedDict, total=False):
    name: Literal['none', 'magnitude', 'movement', 'channels']
    sparsity: float
    scope: Literal['global', 'layer']
    layers: str
    pattern: str
    begin: float
    end: float
    every: int
    rewind: int | None


class MemorySection(TypedDict, total=False):
    checkpoint: int
    offload: Literal['none', 'host', 'file']
    offload_dir: str
    state_bits: int
    step_in_backward: bool
    parameters: Literal['float32', 'bf16']
    return_freed: bool
    budget: str | None


class LaunchSection(TypedDict, total=False):
    workers: int
    launcher: Literal['processes', 'threads', 'netns']
    nodes: int
    group: Literal['auto', 'shm', 'gloo', 'nccl']
    timeout: float | None
    bottleneck: Sequence[str] | str
    link: Sequence[str] | str
    fault: Sequence[str] | str
    i_trust_this_network: bool


class TrainSection(TypedDict, total=False):
    start: str
    epochs: int
    steps: int | None
    batch_size: Literal['all'] | int | None
    drop_last: bool
    micro_batch: int
    reduction: Literal['fastest', 'invariant']
    clip_norm: float | None
    coupled: bool
    balance: bool
    on_nonfinite: Literal['stop', 'skip']
    test: bool
    metrics: Sequence[str]


class StopSection(TypedDict, total=False):
    patience: int | None
    metric: str
    goal: Literal['auto', 'lower', 'higher']
    least_change: float


class CheckpointSection(TypedDict, total=False):
    every: int | None
    keep: int
    first_step: bool


class OutputSection(TypedDict, total=False):
    dir: str
    name: str
    trace: bool
    logger: Sequence[str] | str


class StrategySection(TypedDict, total=False):
    name: Literal['single', 'naive', 'ddp', 'dp', 'rpc', 'onecopy', 'zero', 'local', 'server', 'pipeline', 'tensor', 'pipeline+tensor', 'pipeline+onecopy', 'pipeline+zero', 'tensor+onecopy', 'tensor+zero', 'pipeline+tensor+onecopy', 'pipeline+tensor+zero'] | str
    aggregate: Literal['gradients', 'parameters']
    combine: Literal['exact', 'sum', 'mean', 'weighted_mean']
    combine_stages: Sequence[str]
    check_init: bool
    bucket_mib: float
    first_bucket_mib: float
    unused: Literal['refuse', 'zero']
    sync_batchnorm: bool
    stage: int
    unit_mib: float
    unit_of: str | Callable[..., Any] | None
    offload: Literal['none', 'memory', 'file']
    offload_dir: str
    every: int
    outer_lr: float
    outer_momentum: float
    fragments: int
    overlap: int
    moments: Literal['average', 'keep'] | None
    mode: Literal['bsp', 'ssp', 'asp', 'hogwild']
    servers: int | None
    staleness: int | None
    damping: bool
    compensation: float
    backup: int
    on_lost: Literal['stop', 'continue']
    microbatches: int
    cut: str | Sequence[str]
    schedule: Literal['sequential', 'gpipe', '1f1b', 'zero-bubble', 'async'] | str | Callable[..., Any]
    weight_gradients: Literal['each', 'once']
    recompute: bool
    plan: str


class _Shared(TypedDict, total=False):
    device: Literal['auto', 'cpu', 'cuda'] | str
    threads: int | None
    optimizer: Literal['gd', 'sgd', 'adam', 'adamw'] | str | Callable[..., Any] | OptimizerSection | Mapping[str, Any]
    schedule: Literal['constant', 'step', 'cosine'] | str | Callable[..., Any] | ScheduleSection | Mapping[str, Any]
    sync: Literal['none', 'naive', 'dp', 'ddp', 'onecopy', 'zero', 'local', 'server', 'rpc'] | str | Callable[..., Any] | StrategySection | Mapping[str, Any]
    exchange: Literal['all_reduce', 'by', 'robust', 'compressed', 'stages'] | str | Callable[..., Any] | ExchangeSection | Mapping[str, Any]
    launch: LaunchSection | Mapping[str, Any]
    checkpoint: CheckpointSection | Mapping[str, Any]
    output: OutputSection | Mapping[str, Any]
    data_dir: str
    validation: float
    lr: float
    momentum: float
    weight_decay: float
    aggregate: Literal['gradients', 'parameters']
    combine: Literal['exact', 'sum', 'mean', 'weighted_mean']
    combine_stages: Sequence[str]
    check_init: bool
    workers: int
    launcher: Literal['processes', 'threads', 'netns']
    nodes: int
    group: Literal['auto', 'shm', 'gloo', 'nccl']
    bottleneck: Sequence[str] | str
    link: Sequence[str] | str
    fault: Sequence[str] | str
    i_trust_this_network: bool
    batch_size: Literal['all'] | int | None
    micro_batch: int
    clip_norm: float | None
    checkpoint_every: int | None
    runs_dir: str
    name: str
    trace: bool
    logger: Sequence[str] | str


class FitSettings(_Shared, total=False):
    seed: int
    engine: Literal['torch', 'tape', 'static']
    precision: Literal['float32', 'tf32', 'bf16', 'fp16']
    compile: bool
    mesh: str
    pipeline: PipelineSection | Mapping[str, Any]
    tensor: TensorSection | Mapping[str, Any]
    partition: Literal['global', 'sampling', 'random', 'contiguous', 'hash', 'stratified', 'label', 'dirichlet', 'speed'] | str | Callable[..., Any] | PartitionSection | Mapping[str, Any]
    prune: Literal['none', 'magnitude', 'movement', 'channels'] | PruneSection | Mapping[str, Any]
    memory: MemorySection | Mapping[str, Any]
    train: TrainSection | Mapping[str, Any]
    stop: StopSection | Mapping[str, Any]
    start: str
    balance: bool
    epochs: int
    steps: int | None
    reduction: Literal['fastest', 'invariant']


class Settings(FitSettings, total=False):
    model: Literal['linear', 'mlp', 'lenet', 'resnet18', 'transformer'] | str | Callable[..., Any] | ModelSection | Mapping[str, Any]
    data: Literal['digits', 'alice', 'mnist', 'fashion-mnist', 'cifar10', 'synthetic', 'files'] | str | Callable[..., Any] | DataSection | Mapping[str, Any]
    loss: Literal['cross_entropy', 'mse', 'mae'] | str | Callable[..., Any] | LossSection | Mapping[str, Any]
    metrics: Sequence[str]
    strategy: Literal['single', 'naive', 'ddp', 'dp', 'rpc', 'onecopy', 'zero', 'local', 'server', 'pipeline', 'tensor', 'pipeline+tensor', 'pipeline+onecopy', 'pipeline+zero', 'tensor+onecopy', 'tensor+zero', 'pipeline+tensor+onecopy', 'pipeline+tensor+zero'] | str | Callable[..., Any] | StrategySection | Mapping[str, Any]


class EvaluateSettings(TypedDict, total=False):
    device: Literal['auto', 'cpu', 'cuda'] | str
    threads: int | None
    data: Literal['digits', 'alice', 'mnist', 'fashion-mnist', 'cifar10', 'synthetic', 'files'] | str | Callable[..., Any] | DataSection | Mapping[str, Any]
    model: Literal['linear', 'mlp', 'lenet', 'resnet18', 'transformer'] | str | Callable[..., Any] | ModelSection | Mapping[str, Any]
    loss: Literal['cross_entropy', 'mse', 'mae'] | str | Callable[..., Any] | LossSection | Mapping[str, Any]
    data_dir: str
    validation: float
    metrics: Sequence[str]


class PruneSettings(_Shared, total=False):
    data: Literal['digits', 'alice', 'mnist', 'fashion-mnist', 'cifar10', 'synthetic', 'files'] | str | Callable[..., Any] | DataSection | Mapping[str, Any]
    model: Literal['linear', 'mlp', 'lenet', 'resnet18', 'transformer'] | str | Callable[..., Any] | ModelSection | Mapping[str, Any]
    strategy: Literal['single', 'naive', 'ddp', 'dp', 'rpc', 'onecopy', 'zero', 'local', 'server', 'pipeline', 'tensor', 'pipeline+tensor', 'pipeline+onecopy', 'pipeline+zero', 'tensor+onecopy', 'tensor+zero', 'pipeline+tensor+onecopy', 'pipeline+tensor+zero'] | str | Callable[..., Any] | StrategySection | Mapping[str, Any]
