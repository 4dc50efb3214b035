"""What happened in a run: spans and steps as records, and the files of the run folder that hold them."""
