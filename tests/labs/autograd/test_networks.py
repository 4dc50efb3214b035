from shoal_labs.autograd.networks import cold_compile_ms, random_batch, time_compilation_ms


def test_the_first_compilation_of_a_process_takes_longer_than_a_later_one(tmp_path, monkeypatch):
    """By an order of magnitude, because it imports modules: not a comparison of two similar times.

    None of these modules is in the current directory.
    """
    (tmp_path / "torch.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    batch = random_batch(2, seed=0)
    again = min(time_compilation_ms("mlp", 0, batch) for _ in range(3))
    assert cold_compile_ms("mlp", batch_size=2, seed=0, processes=1)[0] > 2 * again
