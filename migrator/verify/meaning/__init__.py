"""What the rows mean: when triggers fire, what summaries sum up, what a history may look like. Reads only."""
