"""The parameter server: servers hold the weights, workers pull them and push gradients (bsp, ssp, asp, hogwild)."""
