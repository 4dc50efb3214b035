"""From a config to an exchange."""

from shoal.comm.algorithms import ALGORITHMS
from shoal.config.schema import AllReduceConfig, ByConfig, ExchangeConfig
from shoal.errors import ConfigError
from shoal.parallel.exchange.exchange import Exchange
from shoal.parallel.exchange.linear import AllReduce, By
from shoal.parallel.now import Now


def build_exchange(config: ExchangeConfig, size: int, now: Now) -> Exchange:
    """The exchange that a config describes, among `size` workers."""
    if isinstance(config, AllReduceConfig):
        return AllReduce()
    if isinstance(config, ByConfig):
        return By(ALGORITHMS[config.algorithm])
    raise ConfigError(f"exchange {config.name} is not built yet")
