"""Structured pruning: channels, neurons and attention heads that are removed, and the networks that are left.

`groups` finds the channels that can only be removed together, `rules` follows them through each type of layer,
`choose` picks those to remove, `shrink` removes them, `widths` describes and rebuilds the smaller network, and `source`
writes it as a program that needs nothing but torch.
"""
