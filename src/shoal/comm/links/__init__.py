"""A group whose messages take time, for slow networks on one machine. Read `wire.py`, `courier.py`, `shaped.py`."""
