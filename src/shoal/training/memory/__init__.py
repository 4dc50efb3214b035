"""Training within less memory: what a run does with activations, gradients and state, as `--memory` says."""
