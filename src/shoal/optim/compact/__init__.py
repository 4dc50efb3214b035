"""Optimizer state in 8 bits, and parameters in bfloat16: less memory, and updates that are still computed in float32."""
