"""Parquet files between workers and Spark: formats, manifests, and cleanup.

Enters: columns, and the files of tables. Leaves: manifests, by which one file serves several readers. Nothing
here speaks to Spark.
"""
