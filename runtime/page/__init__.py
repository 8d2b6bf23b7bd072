"""Server of the monitor's page: for a running monitor, or for a store at rest.

Enters: HTTP requests, observations and events of the monitor. Leaves: responses and events.
"""
