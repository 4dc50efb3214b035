"""Launchers: `start` workers (threads, processes), `supervise` them, end them all when one fails."""
