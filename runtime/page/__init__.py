"""The monitor's page as a server: beside a running monitor, or over the store of a job that is not running.

Enters: HTTP requests, what the monitor tells. Leaves: responses and events.
"""
