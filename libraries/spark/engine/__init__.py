"""The engine "spark": runs a program on Spark only, without Falkirk's workers.

Enters: the graph of a dataflow. Leaves: the batches of its captures and sinks, with the epochs that they have on workers. The
epoch of a row is a column, each verb is a query over the ones before it, and Spark plans them together. What has no counterpart
in Spark that gives the same in all cases is refused, with the user's line, before Spark starts.
"""
