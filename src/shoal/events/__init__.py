"""Records of a run: spans, steps, clock offsets, and the files of the run folder that hold them."""
