"""Data of the user's own: what a function returns, or the folder or file whose path it returns."""
