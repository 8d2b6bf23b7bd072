"""Prometheus metrics of the job, for /metrics, by the last sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import get_args

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from monitor.explain.exposure import MONITOR
from monitor.explain.verdict import State
from monitor.web.hub import Hub
from monitor.web.view import ENDED, UNKNOWN, Observation, View
from recovery.layout import Layout
from recovery.metadata import NEVER

CONTENT_TYPE = CONTENT_TYPE_LATEST


def metrics(hub: Hub, now: float) -> bytes:
    """Metrics in Prometheus' text format, of the last sample; nobody is asked.

    `now`: seconds since 1970.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Job(hub, now))
    return generate_latest(registry)


def metrics_of_all(hubs: Mapping[str, Hub], now: float) -> bytes:
    """Metrics of several jobs, each with its key as label `job`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(hubs, now))
    return generate_latest(registry)


class _Jobs:
    def __init__(self, hubs: Mapping[str, Hub], now: float) -> None:
        self._jobs = {key: _Job(hub, now) for key, hub in hubs.items()}

    def collect(self) -> Iterator[Metric]:
        """Metrics for the registry: a family once, with the samples of all jobs."""
        families: dict[str, Metric] = {}
        for key, job in self._jobs.items():
            for family in job.collect():
                known = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                known.samples += [sample._replace(labels={"job": key, **sample.labels}) for sample in family.samples]
        yield from families.values()


_TOTALS: tuple[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, str], ...] = (
    (CounterMetricFamily, "read", "records_read", "Records that sources have read, again after a failure included."),
    (CounterMetricFamily, "written", "records_written", "Records that sinks have written."),
    (GaugeMetricFamily, "state", "state_bytes", "State of all operators, about."),
    (GaugeMetricFamily, "logged", "log_bytes", "Logged messages."),
    (GaugeMetricFamily, "kept", "kept_bytes", "Messages to other workers, kept in memory."),
    (
        *(GaugeMetricFamily, "covered", "kept_share"),
        "The share of epochs since the last cut of which all that went to other workers is kept; the least.",
    ),
    (
        GaugeMetricFamily,
        "age",
        "observation_age_seconds",
        "The age of the oldest of what workers have said of themselves.",
    ),
    (
        *(GaugeMetricFamily, "p50", "epoch_latency_p50_seconds"),
        "Seconds from the end of reading an epoch until it is complete, p50.",
    ),
    (
        *(GaugeMetricFamily, "p99", "epoch_latency_p99_seconds"),
        "Seconds from the end of reading an epoch until it is complete, p99.",
    ),
)
"""Totals shown as metrics if known: type, names there and here, description."""


class _Job:
    def __init__(self, hub: Hub, now: float) -> None:
        self._now = now
        self._seen = hub.view.observation if hub.view is not None else None
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        """Metrics for the registry."""
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
        if seen.live:
            what = "How long ago the monitor has said what is shown here."
            yield GaugeMetricFamily("falkirk_sample_age_seconds", what, value=max(0.0, self._now - seen.at))
        yield GaugeMetricFamily("falkirk_generation", "How many rounds of rollback there were.", value=seen.generation)
        running = GaugeMetricFamily("falkirk_phase", "1 for the phase that the job is in.", labels=["phase"])
        running.add_metric([seen.phase], 1)
        yield running
        state = GaugeMetricFamily("falkirk_job_state", "1 for the state of the job, by its verdict.", labels=["state"])
        for name in get_args(State):
            state.add_metric([name], float(name == seen.verdict.state))
        yield state
        what = "1 if somebody should look at the job: it is stuck, has failed, or was killed."
        yield GaugeMetricFamily("falkirk_alarm", what, value=float(seen.verdict.alarm))
        stuck = seen.at - seen.verdict.since if seen.verdict.state == "stuck" else 0.0
        yield GaugeMetricFamily(
            "falkirk_stuck_seconds", "How long the job has been stuck; 0 if it is not.", value=stuck
        )
        alive = GaugeMetricFamily(
            "falkirk_worker_alive", "Whether a worker is there and has memory.", labels=["worker"]
        )
        failures = GaugeMetricFamily(
            "falkirk_worker_failures", "Failures since a low-watermark last rose.", labels=["worker"]
        )
        for at, status in enumerate(seen.workers):
            copy, worker = divmod(at, hub.layout.workers)
            label = [f"{worker}/{copy}" if copy else str(worker)]
            alive.add_metric(label, float(status.presence == "alive"))
            failures.add_metric(label, status.failures)
        yield from (alive, failures)
        yield from _frontiers(seen, hub.layout)
        yield from _exposure(seen)
        yield from _mates(seen)
        yield from _operators(hub.view, hub.layout)
        totals = hub.view.totals()
        for family, name, metric, what in _TOTALS:
            if totals[name] is not None:
                yield family(f"falkirk_{metric}", what, value=totals[name])


_MATES = (
    ("follows", "1 if the mate of this worker has loaded its durable state and follows it."),
    ("behind_checkpoints", "Durable checkpoints that the mate has not loaded; it stays 1 behind."),
    ("left_bytes", "Bytes in the store that a take-over by this mate would read now."),
    ("memory_bytes", "Resident memory of the mate; 0 while there is none."),
    ("begun", "Mates of this worker begun so far."),
)


def _mates(seen: Observation) -> Iterator[Metric]:
    if not seen.mates:
        return
    families = [GaugeMetricFamily(f"falkirk_mate_{name}", what, labels=["worker"]) for name, what in _MATES]
    for mate in seen.mates:
        values = float(mate.state == "follows"), mate.behind, mate.left, mate.memory, mate.begun
        for family, value in zip(families, values, strict=True):
            family.add_metric([str(mate.worker)], value)
    yield from families


_EXPOSURE = (
    ("records", "Records that would be handled again if this worker died now, by the last sample and the rates since."),
    ("redo_seconds", "Seconds that handling them again would take, of the worker with most of it."),
    ("seconds", "Seconds until all would be as it was: the above, and restoring, as last measured in this job."),
)


def _exposure(seen: Observation) -> Iterator[Metric]:
    families = [GaugeMetricFamily(f"falkirk_exposure_{name}", what, labels=["worker"]) for name, what in _EXPOSURE]
    for each in seen.exposure:
        who = "monitor" if each.who == MONITOR else str(each.who)
        for family, value in zip(families, (each.records, each.redo, each.seconds)):
            if value is not None:
                family.add_metric([who], value)
    yield from families


_OPERATORS = (
    ("records_taken", "Records that an operator has taken, again after a failure included.", 1.0),
    ("records_sent", "Records that an operator has sent, again after a failure included.", 1.0),
    ("busy_seconds", "Seconds that an operator has worked.", 1e-6),
)


def _operators(view: View, layout: Layout) -> Iterator[Metric]:
    counts = view.counted()
    if counts is None:
        return
    for at, (name, what, unit) in enumerate(_OPERATORS):
        family = CounterMetricFamily(f"falkirk_operator_{name}", what, labels=["operator"])
        for p, info in enumerate(layout.processors):
            family.add_metric([info.name], float(counts[at, p]) * unit)
        yield family
    what = "Seconds since the first work of an operator that a failure may undo."
    unsafe = GaugeMetricFamily("falkirk_unsafe_seconds", what, labels=["operator"])
    seen = view.observation
    for info, since in zip(layout.processors, view.unsafe().tolist() if seen is not None else ()):
        if seen is not None and since != UNKNOWN:
            unsafe.add_metric([info.name], 0.0 if since == ENDED else max(0.0, seen.at - since))
    yield unsafe


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
