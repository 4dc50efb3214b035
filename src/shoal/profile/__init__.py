"""Records the steps of any torch program, unchanged: `shoal launch --profile`, and `torchrun … -m shoal.profile`."""
