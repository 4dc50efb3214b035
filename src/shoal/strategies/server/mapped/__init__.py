"""A server on one machine whose workers update its weights themselves, in memory that all of them map (asp, ssp)."""
