"""Optimizer state in 8 bits, and parameters in bfloat16; updates are still computed in float32."""
