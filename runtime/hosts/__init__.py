"""Jobs on several hosts, one worker on each.

Enters: a host file and a program. Leaves: the result of this host's worker.
"""
