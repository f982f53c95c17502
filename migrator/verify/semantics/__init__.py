"""Semantics checks: when triggers fire, what summaries sum up, which histories are possible. Reads only."""
