"""The table of techniques, by formula alone."""

from shoal.config.read import read
from shoal.memory.technique_table import as_text, samples_at_once, technique_rows

TEXT = "--model transformer --model.layers 4 --data synthetic --data.task text --device cpu --batch-size 32"


def test_rows_by_formula():
    config = read(None, TEXT.split())
    rows = technique_rows(config, is_measured=False)
    by_flags = {row["flags"]: row["formula_bytes"] for row in rows}
    assert by_flags["--memory.checkpoint 1"] < by_flags["--memory.checkpoint 2"] < by_flags[""]
    assert by_flags["--memory.offload file"] < by_flags["--memory.checkpoint 1"]
    assert by_flags["--micro-batch 8"] < by_flags["--micro-batch 16"] < by_flags[""]
    shown = as_text(config, rows)
    assert "Techniques, with 32 samples at once" in shown
    assert "measured" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_samples_at_once_are_a_part_of_a_share():
    assert samples_at_once(read(None, ["--batch-size", "64", "--strategy", "ddp", "--workers", "2"])) == 32
    assert samples_at_once(read(None, ["--batch-size", "64", "--micro-batch", "8"])) == 8
