"""The scheduler driven in a scratch tenant, through its facade and its store, and judged by oracles of its own."""
