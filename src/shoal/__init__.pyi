from shoal.api.callbacks import Callback as Callback
from shoal.api.fit import fit as fit
from shoal.api.notebook import notebook_launch as notebook_launch
from shoal.api.train import train as train
from shoal.comm.join import join as join
from shoal.data.division.check_loader import check_loader as check_loader
from shoal.data.division.samplers import DistributedSampler as DistributedSampler
from shoal.data.division.samplers import PartitionSampler as PartitionSampler
from shoal.data.division.samplers import RandomSampler as RandomSampler
from shoal.data.division.subsets import DatasetPartitioner as DatasetPartitioner
from shoal.data.division.subsets import partition as partition
from shoal.models.metrics import Metric as Metric
from shoal.parallel.by_hand.average_gradients import average_gradients as average_gradients
from shoal.parallel.layout.tensor.divide import tensor_parallel as tensor_parallel
from shoal.parallel.sync.replicas import ReplicaSync as ReplicaSync
from shoal.parallel.sync_batchnorm import SyncBatchNorm as SyncBatchNorm
from shoal.parallel.wrapper.distributed_data_parallel import (
    DistributedDataParallel as DistributedDataParallel,
)
from shoal.parallel.wrapper.one_copy import OneCopy as OneCopy
from shoal.parallel.wrapper.parameter_server import ParameterServer as ParameterServer
from shoal.parallel.wrapper.pipeline import Pipeline as Pipeline
from shoal.parallel.wrapper.zero import zero as zero

__version__: str
