"""The mapping language: a scheduler's collections described as data, in place of a profile written in Python."""
