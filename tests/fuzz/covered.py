"""The target that reads through each place that makes sense of bytes, and the places that need none."""

from __future__ import annotations

_VALUES = ("value", "records")

COVERED: dict[str, tuple[str, ...]] = {
    "libraries.spark.manifest:entries_of": ("manifest entry",),
    "libraries.spark.protocol:FROM_SPARK": ("from spark",),
    "libraries.spark.protocol:TO_SPARK": ("to spark",),
    "libraries.spark.schemas:read_schema": ("schema",),
    "monitor.coordination.records:_decoder": ("monitor record", "monitor journal"),
    "runtime.page.protocol:FROM_PAGE": ("from page",),
    "runtime.page.protocol:TO_PAGE": ("to page",),
    "runtime.control:FROM_CHILD": ("from child",),
    "runtime.control:TO_CHILD": ("to child",),
    "runtime.control:cut": ("to child", "from child"),
    "recovery.epoch_ends:_decoder": ("ends of epochs",),
    "recovery.protocol:_to_monitor": ("to monitor", "join", "coordinator"),
    "recovery.protocol:_to_worker": ("to worker",),
    "recovery.checkpoint.records:_decoder": ("worker record", "worker journal"),
    "recovery.store.identity:_decoder": ("store identity",),
    "recovery.store.segments:_check_end": ("segment",),
    "recovery.store.segments:_decode": ("segment",),
    "recovery.store.segments:_read_prefix": ("segment",),
    "recovery.store.segments:decode_segment": ("segment",),
    "timely.data.codec.batches:_decoder": _VALUES,
    "timely.data.codec.numeric:_dtype": _VALUES,
    "timely.data.codec.numeric:_read_arrays": _VALUES,
    "timely.data.codec.numeric:_read_scalars": _VALUES,
    "timely.data.codec.records:_read_big_ints": _VALUES,
    "timely.data.codec.standard:_zone": _VALUES,
    "timely.data.codec.tables:_field": ("arrow", "polars"),
    "timely.data.codec.tables:_refuse_compressed": ("arrow", "polars"),
    "timely.data.codec.tables:read_table": ("arrow", "polars"),
    "runtime.processes.monitor:LAYOUT": ("to child",),
    "runtime.host_file:HostFile.keys": ("key file",),
    "runtime.host_file:HostFile.load": ("host file",),
    "runtime.host_file:_public_key": ("key file",),
    "runtime.hosts:_GREETING": ("host greeting",),
    "runtime.links.unix:_Peer._cut": ("unix link",),
    "runtime.links.frames:_decoder": ("frame", "unix link", "host link"),
    "runtime.links.frames:decode_frame": ("frame", "unix link", "host link"),
    "runtime.links.zeromq:ZmqLink._take": ("host link",),
    "timely.dataflow.fingerprint:_outlines": ("host greeting", "from child", "join"),
    "timely.io.claim:owner_of": ("owner of output",),
    "timely.io.csv_files:CsvBlocks._convert": ("csv", "csv as records"),
    "timely.io.csv_files:CsvBlocks._read_header": ("csv", "csv as records"),
    "timely.io.csv_files:Dialect._check_quotes": ("csv", "csv as records"),
    "timely.io.json_lines:JsonBlocks._explain": ("json lines", "json records"),
    "timely.io.json_lines:JsonBlocks._table": ("json lines",),
    "timely.io.json_lines:_LINES": ("json lines", "json records"),
    "timely.io.json_lines:_OBJECTS": ("json lines",),
    "timely.io.parquet_files:Parquet._parquet": ("parquet",),
}

_PROGRAM = "a pickle of the user's program, from the process that started this one; it may do anything anyway"
_OWN_FILES = "Parquet that Spark wrote for this job, into its own folder"
_OWN_SERVER = (
    "orders and numbers between a process and the fork server that it has started, over sockets that nobody else has"
)
_MEMORY = "views of memory that this process has made itself"
_TABLE = "the page's table of a worker's numbers, of which a wrong one is caught where views are made"

NO_NEED: dict[str, str] = {
    "runtime.processes.fork_server:ForkServer._obey": _OWN_SERVER,
    "runtime.processes.fork_server:_ORDER": _OWN_SERVER,
    "runtime.supervisor.forked:ForkClient.fork": _OWN_SERVER,
    "runtime.supervisor.forked:Forked.wait": _OWN_SERVER,
    "falkirk.bench.data:records_of": "a file that the benchmark has just written",
    "falkirk.bench.harness:_figures": "the output of the benchmark's own programs",
    "falkirk.cli:falkirk_version": "pyproject.toml of this repository",
    "falkirk.cli_arguments:parse_arguments": "the command line: see tests/mistakes",
    "falkirk.simulate.reference:_sum": "what the simulator's own process answers",
    "falkirk.what_if_view:_call": "the answer of the page that the user named",
    "libraries.spark.files:_gathered": _OWN_FILES,
    "libraries.spark.files:read_output": _OWN_FILES,
    "libraries.spark.queries:Queries._follow": _PROGRAM,
    "libraries.spark.queries:_Publisher._deal_out": _OWN_FILES,
    "libraries.spark.tasks:Tasks._frame": _PROGRAM,
    "libraries.spark.tasks:Tasks._tables_of": _PROGRAM,
    "libraries.spark.tasks:Tasks.run": _PROGRAM,
    "runtime.processes.standalone_monitor:_process_of": "the kernel's word on who is at the other end of a socket",
    "monitor.web.app:_Pages.whatif": "see tests/monitor/web",
    "monitor.web.detail:_numbers": _TABLE,
    "monitor.web.view:View._hear": _TABLE,
    "monitor.web.view:View.rows": _MEMORY,
    "timely.data.codec.numeric:_pack_arrays": "writes",
    "timely.data.codec.typed:Typed.__init__": "whoever makes one is listed",
    "runtime.control:receive_bytes": "one length, of a message that is read in full before anybody looks at it",
    "runtime.program:unpacked": _PROGRAM,
    "runtime.links.zeromq:ZmqLink.__init__": "a random number of its own",
    "timely.data.kernels.columns:pooled_empty": _MEMORY,
    "timely.data.kernels.crc:hash_each": _MEMORY,
    "timely.data.kernels.tables:_NO_BYTES": _MEMORY,
    "timely.data.kernels.tables:_layout": _MEMORY,
}
