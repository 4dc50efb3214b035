"""What is set up before the first step: device, links, layout, division of the data, learning rates."""
