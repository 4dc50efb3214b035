"""A group whose messages take their time. Read `wire.py` first, then `courier.py` and `shaped.py`."""
