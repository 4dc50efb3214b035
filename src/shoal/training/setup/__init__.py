"""Set up before the first step: device, links, layout, data and its division, learning rates."""
