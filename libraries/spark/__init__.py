"""Spark: batch regions that run on it, and what finds, starts and watches it."""
