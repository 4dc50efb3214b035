"""Layouts: how one replica of a model is divided among workers."""
