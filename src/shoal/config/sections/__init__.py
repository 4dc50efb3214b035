"""The sections of a run, one file each; `config.schema` puts them together."""
