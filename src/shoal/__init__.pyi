from shoal.api.callbacks import Callback as Callback
from shoal.api.compare import compare as compare
from shoal.api.fit import fit as fit
from shoal.api.memory import memory as memory
from shoal.api.notebook import notebook_launch as notebook_launch
from shoal.api.prune import prune as prune
from shoal.api.runs import report as report
from shoal.api.runs import runs as runs
from shoal.api.saved import evaluate as evaluate
from shoal.api.saved import load as load
from shoal.api.train import train as train
from shoal.comm.join import join as join
from shoal.data.division.samplers import DistributedSampler as DistributedSampler
from shoal.data.division.samplers import PartitionSampler as PartitionSampler
from shoal.data.division.samplers import RandomSampler as RandomSampler
from shoal.data.division.samplers import check_loader as check_loader
from shoal.data.division.subsets import DatasetPartitioner as DatasetPartitioner
from shoal.data.division.subsets import partition as partition
from shoal.models.metrics import Metric as Metric
from shoal.strategies.ddp.distributed_data_parallel import (
    DistributedDataParallel as DistributedDataParallel,
)
from shoal.strategies.library.average_gradients import average_gradients as average_gradients
from shoal.strategies.onecopy.library import OneCopy as OneCopy
from shoal.strategies.pipeline.library import Pipeline as Pipeline
from shoal.strategies.replicas.sync_batchnorm import SyncBatchNorm as SyncBatchNorm
from shoal.strategies.replicas.user_sync import ReplicaSync as ReplicaSync
from shoal.strategies.server.library import ParameterServer as ParameterServer
from shoal.strategies.tensor.divide import tensor_parallel as tensor_parallel
from shoal.strategies.zero.library import zero as zero

__version__: str
