"""The parameter server (bsp, ssp, asp, hogwild). `server.py` is the main file: it says which transport runs when."""
