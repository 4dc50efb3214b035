"""What runs in processes that import a student's files, a module for each lab: light, because many are started."""
