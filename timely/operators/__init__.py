"""Operators: what they are (`base`), the built-in ones, and how batches find their worker (`channels`)."""
