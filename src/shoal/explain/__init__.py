"""`shoal explain`: what the all-reduce algorithms send, round by round."""
