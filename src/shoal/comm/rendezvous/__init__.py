"""How workers find each other in a store and know what this run wrote there. Read `meet.py` first."""
