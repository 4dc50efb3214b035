"""`onecopy`: the workers of one machine map one copy of the weights, and each updates a slice of it."""
