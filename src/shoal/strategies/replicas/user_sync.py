"""A user's strategy: `package.module:function`, called as `function(parts, **options)`."""

from collections.abc import Callable
from functools import partial

from shoal.config.custom import calling, check_options, load, no_exit
from shoal.config.sections.values import Custom
from shoal.errors import ConfigError, ShoalError
from shoal.strategies.replicas.sync import SyncParts
from shoal.strategies.strategy import Strategy


def build_user_sync(parts: SyncParts, config: Custom) -> Strategy:
    """Construct the strategy; usually the path names a class that derives from `ReplicaSync`.

    Whatever is wrong with the path, the options or what it returns is an error here.
    """
    with calling("strategy", config):
        function = load("strategy", config)
        check_options("strategy", config, function, given=1)
    # Workers communicate in it, so no thread may hold the lock of imports.
    with no_exit(f"strategy {config.name}"):
        try:
            made = function(parts, **dict(config.options))
        except ShoalError:
            raise
        except Exception as error:  # any exception: this runs the user's code
            raise ConfigError(
                f"strategy {config.name} raised {type(error).__name__} when it was constructed: {error}"
            ) from error
    if not isinstance(made, Strategy):
        raise ConfigError(
            f"strategy {config.name} returned a value of type {type(made).__name__}",
            "Name a class that derives from shoal.ReplicaSync, or a function that returns an object of one.",
        )
    return made


def make_user_sync(config: object) -> Callable[[SyncParts], Strategy]:
    """How to build the strategy of a user's path; a ConfigError for a built-in one."""
    return partial(build_user_sync, config=_custom(config))


def is_exact(config: object) -> bool:
    """Whether the strategy claims to equal one machine; True if it declares nothing."""
    custom = _custom(config)
    with calling("strategy", custom):
        return bool(getattr(load("strategy", custom), "is_exact", True))


def _custom(config: object) -> Custom:
    if not isinstance(config, Custom):
        name = getattr(config, "name", config)
        raise ConfigError(
            f"{name} is built into shoal; `shoal check strategy` checks strategies of your own",
            "Name one of yours: package.module:Class.",
        )
    return config
