"""Pruning without training: which weights stay, and networks that become smaller.

`masks` chooses the elements of tensors that are kept, holds the others at zero, and says how many at which step.
`channels/` removes whole channels, neurons and attention heads. Training with them is in `training/prune/`.
"""
