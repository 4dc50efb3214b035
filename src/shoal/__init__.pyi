from shoal.launch.seat import join as join
from shoal.parallel.sync_batchnorm import SyncBatchNorm as SyncBatchNorm
from shoal.parallel.wrapper import DistributedDataParallel as DistributedDataParallel

__version__: str
