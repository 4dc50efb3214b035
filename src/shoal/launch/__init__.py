"""Launchers: `start` workers in places (threads, processes), `supervise` them, end them all when one fails."""
