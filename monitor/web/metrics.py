"""The job as Prometheus metrics, for /metrics: made anew for each scrape, from what the monitor knows then."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from monitor.web.hub import Hub
from monitor.web.view import Observation
from recovery.layout import Layout
from recovery.metadata import NEVER

CONTENT_TYPE = CONTENT_TYPE_LATEST


def metrics(hub: Hub) -> bytes:
    """In Prometheus' text format. What only workers know is there while somebody has the page open, or had it last."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Job(hub))
    return generate_latest(registry)


class _Job:
    def __init__(self, hub: Hub) -> None:
        self._seen = hub.view.observation if hub.view is not None else None
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        seen, hub = self._seen, self._hub
        events = CounterMetricFamily(
            "falkirk_events", "Events of the timeline since this monitor began.", labels=["kind"]
        )
        for kind, count in sorted(hub.events.counts.items()):
            events.add_metric([kind], count)
        yield events
        yield from hub.cut_times.metrics()
        if seen is None:
            return
        assert hub.layout is not None
        assert hub.view is not None
        yield GaugeMetricFamily("falkirk_generation", "How many rounds of rollback there were.", value=seen.generation)
        running = GaugeMetricFamily("falkirk_phase", "1 for the phase that the job is in.", labels=["phase"])
        running.add_metric([seen.phase], 1)
        yield running
        alive = GaugeMetricFamily(
            "falkirk_worker_alive", "Whether a worker is there and has memory.", labels=["worker"]
        )
        failures = GaugeMetricFamily(
            "falkirk_worker_failures", "Failures since a low-watermark last rose.", labels=["worker"]
        )
        for worker, status in enumerate(seen.workers):
            alive.add_metric([str(worker)], float(status.presence == "alive"))
            failures.add_metric([str(worker)], status.failures)
        yield from (alive, failures)
        yield from _frontiers(seen, hub.layout)
        if seen.told:
            totals = hub.view.totals()
            yield CounterMetricFamily("falkirk_records_read", "Records that sources have read.", value=totals["read"])
            yield CounterMetricFamily(
                "falkirk_records_written", "Records that sinks have written.", value=totals["written"]
            )
            yield GaugeMetricFamily("falkirk_state_bytes", "State of all operators, about.", value=totals["state"])
            yield GaugeMetricFamily("falkirk_log_bytes", "Logged messages.", value=totals["logged"])
            yield GaugeMetricFamily(
                "falkirk_kept_bytes", "Messages to other workers, kept in memory.", value=totals["kept"]
            )
            what = "The share of epochs since the last cut of which all that went to other workers is kept; the least."
            yield GaugeMetricFamily("falkirk_kept_share", what, value=totals["covered"])
            for name in ("p50", "p99"):
                if totals[name] is not None:
                    what = f"Seconds from the end of reading an epoch until it is complete, {name}."
                    yield GaugeMetricFamily(f"falkirk_epoch_latency_{name}_seconds", what, value=totals[name])


def _frontiers(seen: Observation, layout: Layout) -> Iterator[Metric]:
    low = GaugeMetricFamily(
        "falkirk_low_watermark_epoch",
        "The epoch that an operator never rolls back below, least of all workers; +Inf at its end.",
        labels=["operator"],
    )
    for p, info in enumerate(layout.processors):
        epoch = min(bounds[p][0] for bounds in seen.low)
        low.add_metric([info.name], float("inf") if epoch >= NEVER else epoch)
    yield low
    completed = GaugeMetricFamily(
        "falkirk_completed_epoch",
        "What a worker has completed, by group of cuts; +Inf at its end.",
        labels=["worker", "group"],
    )
    for worker, epochs in enumerate(seen.completed):
        for group, epoch in enumerate(epochs or ()):
            completed.add_metric([str(worker), str(group)], float("inf") if epoch >= NEVER else epoch)
    yield completed
