"""Settings of runs: the dataclasses behind flags and recipes, how they are read and written. Without torch."""

from shoal.config.conditions import Bottleneck, Link
from shoal.config.flags import Flags
from shoal.config.kinds import AtLeast, Matching
from shoal.config.read import from_tree, read_recipe
from shoal.config.schema import RunConfig
from shoal.config.sections.compression import CompressedConfig
from shoal.config.sections.data import (
    BuiltInDataConfig,
    ContiguousConfig,
    DataConfig,
    DigitsConfig,
    DirichletConfig,
    FashionMnistConfig,
    GlobalConfig,
    HashConfig,
    LabelConfig,
    MnistConfig,
    PartitionConfig,
    RandomConfig,
    SamplingConfig,
    SpeedConfig,
    StratifiedConfig,
    SyntheticConfig,
)
from shoal.config.sections.exchange import AllReduceConfig, ExchangeConfig, RobustConfig, StagesConfig
from shoal.config.sections.launch import LaunchConfig
from shoal.config.sections.model import LenetConfig, MlpConfig, ModelConfig, TransformerConfig
from shoal.config.sections.optimizer import AdamConfig, CosineConfig, GdConfig, OptimizerConfig, SgdConfig
from shoal.config.sections.prune import NoPruneConfig
from shoal.config.sections.sync import SyncConfig
from shoal.config.sections.train import CheckpointConfig, OutputConfig, TrainConfig
from shoal.config.sections.values import Count, Custom
from shoal.config.write import from_plain, to_plain, to_toml
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.pipeline.settings import PipelineConfig
from shoal.strategies.rpc.settings import RpcConfig
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.settings import Combine, NaiveConfig, NoSyncConfig

__all__ = [
    "AdamConfig",
    "AllReduceConfig",
    "AtLeast",
    "Bottleneck",
    "BuiltInDataConfig",
    "CheckpointConfig",
    "Combine",
    "CompressedConfig",
    "ContiguousConfig",
    "CosineConfig",
    "Count",
    "Custom",
    "DataConfig",
    "DdpConfig",
    "DigitsConfig",
    "DirichletConfig",
    "ExchangeConfig",
    "FashionMnistConfig",
    "Flags",
    "GdConfig",
    "GlobalConfig",
    "HashConfig",
    "LabelConfig",
    "LaunchConfig",
    "LenetConfig",
    "Link",
    "Matching",
    "MlpConfig",
    "MnistConfig",
    "ModelConfig",
    "NaiveConfig",
    "NoPruneConfig",
    "NoSyncConfig",
    "OptimizerConfig",
    "OutputConfig",
    "PartitionConfig",
    "PipelineConfig",
    "RandomConfig",
    "RobustConfig",
    "RpcConfig",
    "RunConfig",
    "SamplingConfig",
    "ServerConfig",
    "SgdConfig",
    "SpeedConfig",
    "StagesConfig",
    "StratifiedConfig",
    "SyncConfig",
    "SyntheticConfig",
    "TrainConfig",
    "TransformerConfig",
    "from_plain",
    "from_tree",
    "read_recipe",
    "to_plain",
    "to_toml",
]
