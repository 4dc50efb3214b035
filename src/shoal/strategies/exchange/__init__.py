"""Exchanges: how a bucket becomes the aggregate of all workers' buckets. The one place to plug in how workers agree."""
