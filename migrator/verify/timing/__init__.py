"""How long the scheduler's operations take: rows made in bulk, operations repeated, percentiles."""
