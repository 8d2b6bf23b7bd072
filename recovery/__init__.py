"""Rollback recovery for timely dataflows, after "Falkirk Wheel: Rollback Recovery for Dataflow Systems".

Nothing lives here yet. To come: the metadata that every processor reports, the fault-tolerance policies that
a region can choose, the fixed point that finds the largest consistent rollback frontiers, durable stores,
and the recorder that the engine calls. It builds on `timely`, which runs without it.
"""
