"""For training loops that call every step themselves: average the gradients after backward, without a wrapper."""
