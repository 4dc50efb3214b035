from shoal.comm.join import join as join
from shoal.data.check_loader import check_loader as check_loader
from shoal.data.samplers import DistributedSampler as DistributedSampler
from shoal.data.samplers import PartitionSampler as PartitionSampler
from shoal.data.samplers import RandomSampler as RandomSampler
from shoal.data.subsets import partition as partition
from shoal.parallel.sync_batchnorm import SyncBatchNorm as SyncBatchNorm
from shoal.parallel.wrapper import DistributedDataParallel as DistributedDataParallel

__version__: str
