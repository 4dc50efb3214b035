"""Settings of DeepSpeed, translated into a recipe: `shoal config from-deepspeed`."""
