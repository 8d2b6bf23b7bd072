"""Benchmark registry: variants, units and direction of figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DataKind = Literal["words", "words_plain", "pairs", "clicks"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One system on one benchmark: a program of `bench/programs` in its own process."""

    system: str
    program: str
    part: str = ""
    workers: tuple[int, ...] | None = None
    """Supported numbers of workers; None: any."""
    package: str | None = None
    """Package required by a peer; None: no peer.

    Peers run only when they are asked for.
    """
    once: bool = False
    """True if the program chooses its numbers of workers, and so is measured once."""
    question: str = ""
    """Question answered by the variant, in a benchmark with several.

    Only answers to the same one are compared.
    """
    at_most: int | None = None
    """Maximum size, for systems too slow for more."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark."""

    name: str
    what: str
    unit: str
    size: int
    variants: tuple[Variant, ...]
    data: DataKind | None = None
    higher_is_better: bool = True


_SLOW = 2_000_000
_NEXMARK = ("q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q11", "q12")


def _wordcount(name: str, data: DataKind, what: str) -> Bench:
    variants = (
        Variant("falkirk", "wordcount.py"),
        Variant("polars_loop", "polars_wordcount.py"),
        Variant("bytewax", "bytewax_wordcount.py", package="bytewax", at_most=_SLOW),
        Variant("pathway", "pathway_wordcount.py", package="pathway", at_most=_SLOW),
        Variant("pathway_final_counts_only", "pathway_wordcount.py", "static", package="pathway", at_most=_SLOW),
    )
    return Bench(name, what, "records/s", 10_000_000, variants, data)


_ALL = (
    _wordcount("wordcount", "words", "changed word counts after each of 100 epochs; dictionary-encoded Parquet"),
    _wordcount("wordcount_plain", "words_plain", "the same from Parquet files without dictionaries"),
    Bench(
        "keyed",
        "sum, count and maximum of 100,000 keys in each of 200 epochs",
        "records/s",
        20_000_000,  # rows
        (
            Variant("falkirk", "keyed.py"),
            Variant("exchanged", "keyed.py", "exchanged", workers=(2,)),
            Variant("polars_loop", "polars_keyed.py"),
            Variant("bytewax", "bytewax_keyed.py", package="bytewax", at_most=_SLOW),
            Variant("pathway", "pathway_keyed.py", package="pathway", at_most=_SLOW),
        ),
        "pairs",
    ),
    Bench(
        "windowed",
        "clicks by page and minute of event time, 100 epochs; as records a tenth of them",
        "records/s",
        10_000_000,
        (
            Variant("falkirk", "windowed.py"),
            Variant("records", "windowed.py", "records", at_most=1_000_000),
        ),
        "clicks",
    ),
    Bench(
        "latency",
        "one record an epoch through a keyed count: send, advance, wait on the probe (median)",
        "us",
        20_000,  # epochs
        (
            Variant("falkirk", "latency.py"),
            Variant("zmq_round_trip", "zmq_round_trip.py", workers=(2,)),
            Variant("bytewax", "bytewax_latency.py", "closed", package="bytewax"),
            Variant("pathway", "pathway_latency.py", package="pathway", at_most=2_000),
        ),
        higher_is_better=False,
    ),
    Bench(
        "loop",
        "a record that goes round an almost empty loop; with several workers to another one each time",
        "us/iteration",
        2_000,  # iterations
        (
            Variant("falkirk", "loop.py"),
            Variant("zmq_round_trip", "zmq_round_trip.py", workers=(2,)),
            Variant("pathway", "pathway_loop.py", package="pathway"),
        ),
        higher_is_better=False,
    ),
    Bench(
        "components",
        "connected components of so many random nodes and five times as many edges, from nothing to the answer",
        "s",
        200_000,  # nodes
        (
            Variant("falkirk", "components.py"),
            Variant("numpy_label_propagation", "components.py", "numpy", workers=(1,)),
            Variant("pathway", "pathway_components.py", package="pathway", at_most=200_000),
        ),
        higher_is_better=False,
    ),
    Bench(
        "components_change",
        "one edge comes or goes, half as many again as there are nodes, so that components split and merge (median)",
        "ms",
        80_000,  # nodes
        (
            Variant("falkirk", "components.py", "change"),
            Variant("pathway", "pathway_components.py", "change", package="pathway", at_most=80_000),
        ),
        higher_is_better=False,
    ),
    Bench(
        "reach",
        "nodes reached from 10 roots, twice as many edges as nodes; a thousand edges replaced an epoch (median)",
        "ms",
        200_000,  # nodes
        (Variant("falkirk", "reach.py"),),
        higher_is_better=False,
    ),
    Bench(
        "strong",
        "strongly connected components, twice as many edges as nodes; a thousand edges replaced an epoch (median)",
        "ms",
        200_000,  # nodes
        (Variant("falkirk", "reach.py", "strong"),),
        higher_is_better=False,
    ),
    Bench(
        "triangles",
        "triangles, twice as many edges as nodes; a thousand edges replaced an epoch (median)",
        "ms",
        1_000_000,  # nodes
        (
            Variant("falkirk", "reach.py", "triangles"),
            Variant("scipy_from_nothing", "reach.py", "triangles_from_nothing"),
        ),
        higher_is_better=False,
    ),
    Bench(
        "kcore",
        "nodes of the 3-core, twice as many edges as nodes; a thousand edges replaced an epoch (median)",
        "ms",
        1_000_000,  # nodes
        (Variant("falkirk", "reach.py", "k_core"), Variant("numpy_from_nothing", "reach.py", "k_core_from_nothing")),
        higher_is_better=False,
    ),
    Bench(
        "pagerank",
        "ranks in units of 1e-4, twice as many edges as nodes; an edge replaced an epoch (median)",
        "ms",
        5_000,  # nodes
        (Variant("falkirk", "reach.py", "pagerank"),),
        higher_is_better=False,
    ),
    Bench(
        "join",
        "changes of 10,000 rows against so many that are arranged by 1,000,000 keys (median); the best loop of NumPy for that",
        "ms",
        5_000_000,  # rows
        (Variant("falkirk", "join.py"), Variant("numpy_search", "join.py", "numpy", workers=(1,))),
        higher_is_better=False,
    ),
    Bench(
        "small_epochs",
        "epochs of 48 rows through a group-by with three running aggregates, processor time an epoch",
        "us",
        5_000,  # epochs
        (
            Variant("falkirk", "small_epochs.py", workers=(1,)),
            Variant("polars_loop", "small_epochs.py", "polars", workers=(1,)),
        ),
        higher_is_better=False,
    ),
    Bench(
        "sums",
        "sums by key, operators alone: floats, which are exact, and integers; processor time, the least of so many runs",
        "ns/row",
        300,  # runs
        tuple(
            Variant(part, "sums.py", part, workers=(1,), question=part)
            for part in (
                "columns",
                "columns_by_text",
                "columns_variance",
                "columns_integers",
                "records",
                "records_alone",
                "records_integers",
                "records_running",
                "records_running_integers",
            )
        ),
        higher_is_better=False,
    ),
    Bench(
        "column_verbs",
        "batches of 100 rows through six verbs, processor time a batch; one collect of Polars for each",
        "us",
        5_000,  # batches
        (
            Variant("falkirk", "column_verbs.py", workers=(1,)),
            Variant("polars_collect", "column_verbs.py", "polars", workers=(1,)),
        ),
        higher_is_better=False,
    ),
    Bench(
        "column_components",
        "connected components of so many random nodes and five times as many edges as a loop of column verbs",
        "CPU s",
        200_000,  # nodes
        (
            Variant("falkirk", "column_components.py", workers=(1,)),
            Variant("scipy", "column_components.py", "scipy", workers=(1,)),
        ),
        higher_is_better=False,
    ),
    Bench(
        "prefixes",
        "work in a loop with four epochs in flight that sets of times would do again, by what prefixes do",
        "ratio",
        2_000,  # nodes
        (Variant("falkirk", "prefixes.py", workers=(2, 3)),),
        higher_is_better=False,
    ),
    Bench(
        "nexmark",
        "queries over so many events of an auction house in 119 epochs, by Polars' processor seconds for all of them at once",
        "ratio",
        1_000_000,  # events
        tuple(
            variant
            for query in _NEXMARK
            for variant in (
                Variant(query, "nexmark.py", query, workers=(1,), question=query),
                Variant(
                    f"{query}_bytewax", "bytewax_nexmark.py", query, workers=(1,), question=query, package="bytewax"
                ),
            )
        ),
        higher_is_better=False,
    ),
    Bench(
        "scale",
        "cost of idle operators, and what workers say to each other",
        "us/epoch",
        1_000,  # operators
        (
            Variant("falkirk_idle", "scale.py", "idle"),
            Variant("falkirk_talk", "scale.py", "workers", once=True),
        ),
        higher_is_better=False,
    ),
    Bench(
        "recovery",
        "CPU seconds of the workers over 12 times so many words: without recovery, and under each policy",
        "CPU s",
        10_000_000,  # words
        (
            Variant("no_recovery", "recovery_cost.py", "no_recovery"),
            Variant("lazy_1s", "recovery_cost.py", "lazy_1s"),
            Variant("no_recovery_epochs", "recovery_cost.py", "no_recovery_epochs"),
            Variant("ephemeral", "recovery_cost.py", "ephemeral"),
            Variant("batch", "recovery_cost.py", "batch"),
            Variant("eager", "recovery_cost.py", "eager"),
            Variant("bare_durable_write", "recovery_cost.py", "bare_durable_write"),
        ),
        "words",
        higher_is_better=False,
    ),
    Bench(
        "commit",
        "one message at a time through an eager region, until its output is out, durably; a bare durable write beside it",
        "us",
        400,  # messages
        (Variant("eager", "eager.py", "one", workers=(1,)),),
        higher_is_better=False,
    ),
    Bench(
        "commits",
        "records a second through an eager region, in epochs of so many records",
        "records/s",
        1_000_000,  # records
        (Variant("eager", "eager.py", "many", workers=(1,)),),
    ),
    Bench(
        "policies",
        "each policy on one workload: median until a sink is told; p99, exactly-once outputs, CPU and bytes a record beside it",
        "ms",
        30_000,  # records
        (Variant("falkirk", "policies.py", workers=(1,)),),
        higher_is_better=False,
    ),
    Bench(
        "recovery_ratio",
        "CPU seconds of a worker with recovery to those of one without, both exchanging two cores; no_recovery: no difference",
        "ratio",
        10_000_000,  # words
        tuple(
            Variant(part, "recovery_ratio.py", part, workers=(1,))
            for part in ("no_recovery", "lazy_1s", "ephemeral", "batch")
        ),
        "words",
        higher_is_better=False,
    ),
    Bench(
        "kept_ratio",
        "CPU seconds of workers that keep what they send for survivors to those of such as keep nothing, both at once",
        "ratio",
        1_000,  # thousandths of the usual number of epochs
        tuple(Variant(part, "kept_ratio.py", part, workers=(2,)) for part in ("wordcount", "keyed", "loop", "tiny")),
        higher_is_better=False,
    ),
    Bench(
        "recovery_latency",
        "from when an epoch is due to the sink, 99th percentile; 100 epochs/s, running aggregates of so many keys",
        "ms",
        4_000_000,  # keys
        (Variant("recovery_latency", "recovery_latency.py", "lazy", workers=(1,)),),
        higher_is_better=False,
    ),
    Bench(
        "snapshot",
        "the same of a region of ten operators that is saved as one every second; 40 epochs/s",
        "ms",
        1_000_000,  # keys
        (Variant("snapshot", "recovery_latency.py", "snapshot", workers=(1,)),),
        higher_is_better=False,
    ),
    Bench(
        "restart",
        "from kill -9 of one of two workers to the first new output; running aggregates of so many keys",
        "ms",
        3_000_000,  # keys
        (Variant("falkirk", "restart.py", workers=(2,)), Variant("process_start", "restart.py", "process", once=True)),
        higher_is_better=False,
    ),
    Bench(
        "takeover",
        "from kill -9 of one of two workers to the first new output, with mates and without; sums of so many keys",
        "ms",
        3_000_000,  # keys
        (
            Variant("lazy", "takeover.py", "lazy", workers=(2,)),
            Variant("lazy_mates", "takeover.py", "lazy_mates", workers=(2,)),
            Variant("passive_standby", "takeover.py", "passive_standby", workers=(2,)),
        ),
        higher_is_better=False,
    ),
    Bench(
        "papers checkmate",
        "from kill -9 of one of two workers to the first new output of a query; so many events in each of 25 epochs a second",
        "ms",
        200,  # events
        tuple(
            Variant(f"{query}_{policy}", "checkmate.py", f"{query}-{policy}", workers=(2,))
            for query in ("q1", "q3", "q8", "q12", "reach")
            for policy in ("lazy", "lazy_mates")
        ),
        higher_is_better=False,
    ),
    Bench(
        "survivors",
        "records handled again after kill -9 of a worker, of those since the last cut; so many an epoch and worker; no logs",
        "share",
        200,  # records
        (
            *(Variant(part, "survivors.py", part, workers=(2, 3, 8)) for part in ("counts", "stages", "join")),
            *(
                Variant(example, "survivors_examples.py", example, workers=(2, 3, 8))
                for example in (
                    *("wordcount", "mixed_policies", "loop", "pagerank", "family", "payments", "tolls", "trades"),
                    *("q3", "q4", "q5", "q7", "q8"),  # of Nexmark
                )
            ),
            *(Variant(example, "survivors_spark.py", example, workers=(2, 3, 8)) for example in ("flights", "orders")),
        ),
        higher_is_better=False,
    ),
    Bench(
        "cuts",
        "95th percentile of the time between cuts where 0.5 s is asked; to W, restoring after a kill, peak memory",
        "s",
        1,  # jobs
        tuple(Variant(part, "cuts.py", part) for part in ("flights", "tiny_epochs", "state_128mb", "state_1gb")),
        higher_is_better=False,
    ),
    Bench(
        "monitor_tick",
        "all processors report a checkpoint and every low-watermark rises; 20 in-edges each",
        "ms",
        50_000,  # processors
        (Variant("falkirk", "monitor_tick.py", once=True),),
        higher_is_better=False,
    ),
    Bench(
        "page",
        "an update of the page in which everything has changed, on 64 workers; a tenth of the operators on 4; drawing them",
        "ms",
        1_000,  # operators
        (Variant("falkirk", "page.py", once=True),),
        higher_is_better=False,
    ),
    Bench(
        "page_tab",
        "the page of so many operators in Chromium: first screen, share of the tab's main thread, twenty tabs in turn",
        "s",
        221,  # operators
        tuple(Variant(part, "page_tab.py", part, once=True, question=part) for part in ("first", "thread", "tabs")),
        higher_is_better=False,
    ),
    Bench(
        "page_under_load",
        "99th percentile of epochs while 2,000 connections attack the page, or 20 tabs read it, by that without",
        "ratio",
        5,  # seconds of a period
        tuple(Variant(part, "page_under_load.py", part, once=True, question=part) for part in ("hostile", "tabs")),
        higher_is_better=False,
    ),
    Bench(
        "layouts",
        "crossings of edges in so many drawings, made-up graphs and dataflows; elkjs and dagre where NODE_PATH leads to them",
        "crossings",
        50,  # graphs
        tuple(
            Variant(f"{engine}{kind}", "layouts.py", f"{engine}{kind}", once=True, question=kind)
            for kind in ("", "_programs")
            for engine in ("falkirk", "elkjs", "dagre")
        ),
        higher_is_better=False,
    ),
    Bench(
        "history",
        "share of a busy job's CPU seconds that the writer of its history takes, over so many seconds",
        "%",
        20,  # seconds
        (Variant("falkirk", "history.py"),),
        higher_is_better=False,
    ),
    Bench(
        "spark",
        "so many rows to a batch region on Spark, grouped, and back as columns; a count beside it; 20 times as many rows",
        "ms",
        1_000_000,  # rows
        (
            Variant("falkirk", "spark_region.py", once=True),
            Variant("latency", "spark_region.py", "latency", once=True),
            Variant("memory", "spark_region.py", "memory", once=True),
        ),
        higher_is_better=False,
    ),
    Bench(
        "spark_pipeline",
        "orders through a UDF, a join, a table and two sums on Spark: processor seconds of all processes, Java included",
        "CPU s",
        10_000_000,  # rows
        (
            Variant("falkirk", "spark_pipeline.py", once=True),
            Variant("falkirk_view", "spark_pipeline.py", "view", once=True),
            Variant("pyspark_batch", "spark_pipeline.py", "batch", once=True),
            Variant("falkirk_ten_epochs", "spark_pipeline.py", "epochs", once=True),
            Variant("falkirk_ten_epochs_view", "spark_pipeline.py", "epochs_view", once=True),
            Variant("foreach_batch", "spark_pipeline.py", "foreach_batch", once=True),
        ),
        higher_is_better=False,
    ),
    Bench(
        "spark_restart",
        "from kill -9 of the child, the worker or Java until the run on Spark begins again; one start of Spark beside it",
        "s",
        100_000,  # rows an epoch
        (
            Variant("falkirk", "spark_restart.py", once=True),
            Variant("spare", "spark_restart.py", "spare", once=True),
        ),
        higher_is_better=False,
    ),
)

BENCHES = {bench.name: bench for bench in _ALL}
