"""A first mapping of collections that nobody has described, proposed from a sample of their documents."""
