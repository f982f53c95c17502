"""Plain documents of a collection as rows of binary COPY, by a plan that was made from the collection's mapping."""
