"""Guarantees: a promise for each output of a program under failures. Pure.

Enters: the logical graph, with sources' and sinks' abilities, policies, and what is declared nondeterministic. Leaves:
a `Promise` for each output, with its causes, whom to blame, and what would mend it. The grades and the classes of operators are
those of Hwang and others, *High-Availability Algorithms for Distributed Stream Processing*, section 3.
"""
