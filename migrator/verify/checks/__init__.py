"""The checks as data: one module per area, and one for all areas of behaviour."""
