"""The scheduler: when triggers fire, who runs what, what becomes of runs that fail or vanish. On either backend."""
