"""A group whose members are threads of one process. Read `group.py` first."""
