"""Lab 3: data parallelism."""
