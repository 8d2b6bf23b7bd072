"""Files between workers and Spark: Parquet there and back, the lists of them that runs read, and who may remove them.

Enters: columns, and the files of tables. Leaves: manifests, by which one file serves several readers. Nothing
here speaks to Spark.
"""
