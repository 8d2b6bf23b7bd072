"""The monitor: the process that watches a job's rollback frontiers and decides what a failure costs.

Nothing lives here yet. To come: the coordinator that keeps low-watermarks up to date, announces what may be
collected and leads a recovery, the answers to "what would I lose if this worker died now?", and the web page
that shows both. It will speak to workers only through the messages that `recovery` defines.
"""
