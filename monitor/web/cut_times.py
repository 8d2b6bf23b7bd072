"""Durations of cuts for /metrics: intervals, and times until W contains a cut.

Both are histograms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from monitor.coordination.supervision import TimelineEvent
from monitor.history.facts import Histogram

BUCKETS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends, in seconds."""

_FAMILIES = {
    "interval": ("falkirk_cut_interval_seconds", "Seconds between two cuts of a group."),
    "seconds": ("falkirk_cut_to_low_watermark_seconds", "Seconds from a cut until the low-watermarks contain it."),
}


class CutTimes:
    """Histograms by group, from those of `kept` on."""

    def __init__(self, kept: Iterable[Histogram] = ()) -> None:
        self._counts: dict[tuple[str, int], list[int]] = {}
        self._sums: dict[tuple[str, int], float] = {}
        for each in kept:
            if each.field in _FAMILIES and len(each.counts) == len(BUCKETS) + 1:
                self._counts[each.field, each.group] = list(each.counts)
                self._sums[each.field, each.group] = each.sum

    def kept(self) -> tuple[Histogram, ...]:
        """All times of cuts, for the history."""
        return tuple(Histogram(*key, tuple(counts), self._sums[key]) for key, counts in sorted(self._counts.items()))

    def happened(self, event: TimelineEvent) -> None:
        """Add an event of the timeline."""
        if event.kind != "safe":
            return
        for field in _FAMILIES:
            value = event.data.get(field)
            if isinstance(value, int | float):
                key = field, int(str(event.data["group"]))
                counts = self._counts.setdefault(key, [0] * (len(BUCKETS) + 1))
                counts[bisect_left(BUCKETS, value)] += 1
                self._sums[key] = self._sums.get(key, 0.0) + value

    def metrics(self) -> Iterator[Metric]:
        """Histograms in Prometheus form."""
        for field, (name, what) in _FAMILIES.items():
            family = HistogramMetricFamily(name, what, labels=["group"])
            for (of, group), counts in sorted(self._counts.items()):
                if of == field:
                    sums = [sum(counts[: place + 1]) for place in range(len(counts))]
                    buckets = list(zip([*map(str, BUCKETS), "+Inf"], map(float, sums)))
                    family.add_metric([str(group)], buckets=buckets, sum_value=self._sums[of, group])
            yield family
