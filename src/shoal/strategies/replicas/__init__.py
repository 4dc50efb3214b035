"""What strategies of whole copies share: the base of every sync (how copies agree on one update), its contract."""
