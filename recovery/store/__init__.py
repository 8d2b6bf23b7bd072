"""Durable storage: immutable blobs, segments, and journals made of segments.

`interface` says what a store is and what can go wrong with it; `local` is one in a folder. `segments` is the format of what
is written, `journal` decides what goes into which segment and which ones are still needed, `reading` finds them again
after a failure: all three without I/O of their own.

Enters: sections. Leaves: segments to write, and the sections again.
"""
