"""Lakehouse sources and sinks: Delta Lake and Apache Iceberg.

Each library is optional, and loaded when it is needed.

A commit of the table is an epoch, both ways: a sink makes one commit of each epoch, a source one epoch of each commit.

Enters: batches by epoch; tables and what is committed to them. Leaves: commits, with the mark of job and epoch; chunks
with positions.
"""
