"""Simulation of a whole job in one process, under seeded schedules and faults.

Workers, stores and the monitor are those of production.
"""
