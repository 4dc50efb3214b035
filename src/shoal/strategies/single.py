"""No sync: one worker has all the data. With the layout `whole` this is `single`, the reference for every strategy."""

from typing import final

from shoal.strategies.replicas.sync import Sync


@final
class NoSync(Sync):
    """Phase 1, gradients: summed over the parts of the batch. Phase 2, update. This is the step of `Sync` itself."""
