"""Pruning without training: which weights stay, and networks that become smaller.

`weights` chooses the elements of tensors that are kept, `masks` holds them to zero, `schedule` says how many at which
step. `channels/` removes whole channels, neurons and attention heads. What trains with them is in `training/prune/`.
"""
