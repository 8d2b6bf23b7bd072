"""Explanations: causes of a frontier's place, and the cost of a failure.

Enters: what the coordinator knows. Leaves: words, numbers, processors to blame. Pure.
"""
