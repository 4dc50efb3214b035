"""The table of strategies, and the settings that `--sync` can name."""

from shoal.config.feature import Row
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, unknown
from shoal.strategies.ddp.settings import DdpConfig
from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.onecopy.settings import OneCopyConfig
from shoal.strategies.rpc.settings import RpcConfig
from shoal.strategies.server.settings import ServerConfig
from shoal.strategies.settings import DpConfig, NaiveConfig, NoSyncConfig
from shoal.strategies.zero.settings import ZeroConfig

SyncConfig = (
    NoSyncConfig
    | NaiveConfig
    | DpConfig
    | DdpConfig
    | OneCopyConfig
    | ZeroConfig
    | LocalConfig
    | ServerConfig
    | RpcConfig
    | Custom
)
OWN_SYNC: Row = {"--exchange": "it decides itself what workers exchange"}
"""What a sync of the user's own cannot be combined with."""

DIVIDED_LAYOUTS = ("pipeline", "tensor", "pipeline+tensor")
"""Layouts that divide the model: the mesh names their axes."""
STRATEGIES: dict[str, tuple[str, str]] = {
    "single": ("whole", "none"),
    "naive": ("whole", "naive"),
    "ddp": ("whole", "ddp"),
    "dp": ("whole", "dp"),
    "rpc": ("whole", "rpc"),
    "onecopy": ("whole", "onecopy"),
    "zero": ("whole", "zero"),
    "local": ("whole", "local"),
    "server": ("whole", "server"),
    **{layout: (layout, "ddp") for layout in DIVIDED_LAYOUTS},
    **{f"{layout}+{sync}": (layout, sync) for layout in DIVIDED_LAYOUTS for sync in ("onecopy", "zero")},
}
"""The strategies that exist, each a pair (layout, sync). `--strategy NAME` abbreviates the pair."""

OTHER_NAMES: dict[str, str] = {
    "dataparallel": "--strategy dp",
    "deepspeed": "--strategy zero",
    "diloco": "--strategy local --strategy.outer_lr 0.7 --strategy.outer_momentum 0.9",
    "distributeddataparallel": "--strategy ddp",
    "fsdp": "--strategy zero --strategy.stage 3",
    "gpipe": "--strategy pipeline --pipeline.schedule gpipe",
    "hogwild": "--strategy server --strategy.mode hogwild",
    "horovod": "--strategy ddp",
    "megatron": "--strategy tensor",
}
"""Names from papers and other programs, each with the flags of its counterpart here."""


def unknown_strategy(name: str) -> ConfigError:
    """The error for an unknown name: its counterpart here, or the nearest known name."""
    counterpart = OTHER_NAMES.get(name.lower())
    if counterpart is None:
        return ConfigError(
            unknown("strategy", name, STRATEGIES), "For one of your own, write package.module:function."
        )
    more = "; docs/en/deepspeed.md translates its settings" if name.lower() == "deepspeed" else ""
    return ConfigError(
        f"unknown strategy '{name}': its counterpart is {counterpart.split()[1]}", f"Use {counterpart}{more}."
    )
