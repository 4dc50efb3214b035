"""A group whose messages take time, for slow networks on one machine. Read `courier.py`, then `shaped.py`."""
