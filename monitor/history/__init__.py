"""History of a job: frames, options, facts. Pure.

- `scales`: numbers as one byte each.
- `frames`: what is kept of a second, and its packing by the minute.
- `options_at`: options of every processor at a moment, for `why` and `what if` of the past.
- `files`: records with check sums, found again behind damage; a ring of bounded size.
- `archive`: the moments of all that was read.

Enters: observations, options, events, bytes of files. Leaves: bytes to append, and moments.
"""
