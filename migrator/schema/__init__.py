"""TODO: what migrator.schema holds."""
