"""Launchers: start workers, watch them, and end them all when one fails."""
