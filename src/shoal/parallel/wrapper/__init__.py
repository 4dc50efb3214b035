"""`shoal.DistributedDataParallel`: data parallelism for a training loop of your own, and what only it needs."""
