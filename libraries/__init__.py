"""Libraries written on top of the engine's public names.

Nothing lives here yet. To come: queries over records, differential collections, graph algorithms, batch
regions on Spark, and connectors to other systems.
"""
