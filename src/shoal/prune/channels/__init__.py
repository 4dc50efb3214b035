"""Structured pruning: channels, neurons and attention heads that are removed, and the networks that are left.

`groups` finds the channels that can only be removed together, with a rule for each type of layer, `choose` picks some
of them, `shrink` removes these, `widths` describes and rebuilds the smaller network, and `source` writes it as a
program that needs nothing but torch.
"""
