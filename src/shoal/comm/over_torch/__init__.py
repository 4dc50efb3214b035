"""A group over torch's backends, gloo and NCCL. Read `group.py` first, then `checked.py`."""
