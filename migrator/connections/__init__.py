"""TODO: what migrator.connections holds."""
