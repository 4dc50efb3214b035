"""`ddp`: replicas that send gradients during backward; also `shoal.DistributedDataParallel` and what only it needs."""
