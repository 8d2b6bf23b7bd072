"""Drivers: the threads, sockets, processes and clocks around the pure worker."""
