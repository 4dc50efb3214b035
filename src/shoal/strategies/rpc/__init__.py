"""`rpc`: the layers of a model on several workers, driven by remote procedure calls. Read `stage.py` first."""
