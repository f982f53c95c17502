"""Every check, run one after the other, collected into one result."""
