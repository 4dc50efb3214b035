"""`shoal explain`: every strategy, codec, rule, schedule and algorithm in words, as a picture, and in numbers."""
