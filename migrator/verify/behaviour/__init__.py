"""Scenarios that drive the scheduler in a scratch tenant, by its facade and its store, with independent oracles."""
