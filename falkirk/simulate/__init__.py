"""Workers, stores and the monitor together in one process, under seeded schedules and faults."""
