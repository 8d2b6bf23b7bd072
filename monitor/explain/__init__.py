"""Explanations of the coordinator's answers: why a frontier is where it is, and what a failure would cost.

Enters: what the coordinator knows. Leaves: words, numbers, processors to blame. Pure.
"""
