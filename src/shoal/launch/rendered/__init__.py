"""Files that start one job on several machines or containers (`shoal render`)."""
