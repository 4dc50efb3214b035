"""Layouts: how one copy of a model is divided among workers."""
