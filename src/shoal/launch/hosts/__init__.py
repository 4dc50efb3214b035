"""Workers on several machines: an agent on each starts them, and the launcher supervises all of them together."""
