"""Libraries written on top of the engine's public names: batch regions on Spark.

To come: queries over records, differential collections, graph algorithms, and connectors to other systems.
"""
