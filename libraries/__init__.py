"""Libraries on the engine, as extensions of its classes.

The engine imports none of them.

Rooms, lowest first:

- `columns`: verbs over Polars expressions; `connect`: files, tables, sockets, SQLite.
- `differential`: collections; `sql`: queries over columns.
- `graph`: algorithms; `lindi`: queries over records and columns; `spark`: batch regions, and programs on Spark.
"""
