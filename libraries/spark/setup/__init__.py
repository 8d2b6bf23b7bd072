"""Options and settings of a Spark; Java, its class cache and Sail on this machine.

Enters: what the user has chosen, in options, files and variables. Leaves: settings and environment for a process with
Spark, or an error that says what to install.
"""
