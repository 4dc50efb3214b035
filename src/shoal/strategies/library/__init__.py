"""What the objects for training loops of your own share, and `shoal.average_gradients`, which needs no object."""
