"""The command `falkirk`.

Everything heavy is imported by the command that needs it: `falkirk --help` answers at once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from falkirk.cli_arguments import (
    LARGEST,
    MOST_SECONDS,
    MOST_WORKERS,
    finite,
    parse_arguments,
    parse_size,
    spark_options,
)

if TYPE_CHECKING:
    from recovery.store.address import StoreAddress
    from runtime.session.job import OnStats, Result

# Tables of less would cut off the names of options.
_MARKUP: Literal["rich"] | None = "rich" if shutil.get_terminal_size().columns >= 70 else None

app = typer.Typer(
    name="falkirk",
    help="Timely dataflow in Python, with Falkirk Wheel rollback recovery.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
)

ProgramName = Annotated[
    str,
    typer.Argument(
        metavar="APP.PY[:NAME]",
        help="The program: a Python file, and the name in it of a Dataflow or of a function that builds one "
        "(default: flow, build, or the only Dataflow).",
        show_default=False,
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="KEY=VALUE",
        help="An argument of the function that builds the dataflow. Values that read as JSON are taken as such "
        "(--arg n=3 is a number), others as text. May be given several times.",
        show_default=False,
    ),
]
StoreName = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="The store of the job: a folder, or an address such as file:///path.",
        show_default=False,
    ),
]
Traceback = Annotated[bool, typer.Option("--traceback", help="Show the Python traceback of an error as well.")]

_RUN_EPILOG = (
    "Ctrl-C stops the job cleanly; Ctrl-\\ prints what holds it back.\n\n"
    "Exit codes: 0 done, 1 the program failed, 2 wrong usage, 3 a worker was lost, 130 interrupted, 143 stopped by falkirk "
    "stop.\n\n"
    "Each line of --json has event (progress, finished, failed, interrupted), elapsed, records, records_per_second, "
    "written, open_epoch, read_epoch, lag, queued_bytes, and the same for each of workers. What the program prints goes "
    "to standard error then."
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"falkirk {falkirk_version()} (Python {sys.version.split()[0]})")
        raise typer.Exit


@app.callback()
def _falkirk(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    return


@app.command(epilog=_RUN_EPILOG)
def run(
    program: ProgramName,
    workers: Annotated[
        int, typer.Option("-w", "--workers", min=1, max=MOST_WORKERS, help="How many worker processes.")
    ] = 1,
    arg: Arguments = None,
    max_epochs: Annotated[
        int,
        typer.Option(
            min=1, max=LARGEST, metavar="N", help="How many epochs sources may be ahead of the oldest open one."
        ),
    ] = 32,
    max_bytes: Annotated[
        str, typer.Option(metavar="SIZE", help="How much may wait in queues before sources pause: 64MB, 1GiB, ...")
    ] = "256MiB",
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Run one worker of a job on several hosts (see docs/hosts.md).", show_default=False
        ),
    ] = None,
    index: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_WORKERS, metavar="I", help="Which worker of --hosts this is.", show_default=False),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Keep the job's state here, in a folder or at an address such as file:///path: the job survives the death of "
            "its processes, and goes on from there when it is run again.",
            show_default=False,
        ),
    ] = None,
    heartbeat_timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=MOST_SECONDS,
            callback=finite,
            metavar="SECONDS",
            help="With --store, replace a process that gives no sign of life for so long.",
        ),
    ] = 10.0,
    monitor: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="With --store, use the monitor that was started with falkirk monitor: where it listens, or its store.",
            show_default=False,
        ),
    ] = None,
    ui: Annotated[bool, typer.Option("--ui", help="Serve a page that shows the job while it runs.")] = False,
    ui_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="N", help="Where: [default: 8642, or any that is free]", show_default=False
        ),
    ] = None,
    ui_host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="For whom: other than loopback, the address has a token that lets in."),
    ] = "127.0.0.1",
    events: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="With --store, add what happens to the job to this file, a JSON object a line.",
            show_default=False,
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="MASTER",
            help="With --store, run the workers on this Spark cluster: spark://host:port (see docs/spark_cluster.md). With "
            "--engine spark, the Spark to run on.",
            show_default=False,
        ),
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="With --on or --engine spark, a setting of Spark. May be given several times.",
            show_default=False,
        ),
    ] = None,
    start_limit: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            metavar="SECONDS",
            help="With --on, how long each further executor of the cluster is waited for. [default: 300]",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Literal["falkirk", "spark"],
        typer.Option(
            help="What runs the program: Falkirk's workers, or Spark alone, where that can (see docs/spark_engine.md)."
        ),
    ] = "falkirk",
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,...",
            help="With --store, operators whose functions were changed on purpose: the job goes on with them. Others that are "
            "not those that wrote the store are refused.",
            show_default=False,
        ),
    ] = None,
    mates: Annotated[
        int,
        typer.Option(
            min=0,
            max=1,
            metavar="N",
            help="With --store, keep a second process of each worker that has its durable state in memory, and takes its place "
            "when it dies.",
        ),
    ] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print progress as JSON, an object a line.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=MOST_SECONDS,
            callback=finite,
            metavar="SECONDS",
            help="Between lines of progress. [default: 1 with --json, else 5]",
        ),
    ] = None,
    traceback: Traceback = False,
) -> None:
    """Run a program until all its sources have ended."""
    if quiet and as_json:
        raise typer.BadParameter("--quiet and --json exclude each other")
    if (hosts is None) != (index is None):
        raise typer.BadParameter("--hosts and --index go together: which file, and which worker of it this is")
    if hosts is not None and workers != 1:
        raise typer.BadParameter("the number of workers is that of the host file: leave -w away")
    if hosts is not None and store is not None:
        raise typer.BadParameter("a job on several hosts cannot have a store yet: leave --store away")
    if hosts is not None and ui:
        raise typer.BadParameter("a job on several hosts has no page yet: leave --ui away")
    if not ui and (ui_port is not None or ui_host != "127.0.0.1"):
        raise typer.BadParameter("--ui-port and --ui-host go with --ui")
    page: bool | str = ui
    if ui and (ui_port is not None or ui_host != "127.0.0.1"):
        page = f"[{ui_host}]:{ui_port or 0}"
    if events is not None and store is None and not ui:
        raise typer.BadParameter("--events goes with --store: without a store nothing is watched")
    if monitor is not None and store is None:
        raise typer.BadParameter("--monitor goes with --store: without a store there is nothing to monitor")
    on_spark = engine == "spark"
    if mates and (on_spark or on is not None or hosts is not None):
        raise typer.BadParameter(
            "--mates goes without --hosts, --on and --engine: a mate is a process of this host yet; leave it away"
        )
    if mates and store is None and not ui:
        raise typer.BadParameter("--mates goes with --store: a mate holds what its worker has saved there")
    if accept and (store is None or on_spark):
        raise typer.BadParameter("--accept goes with --store: it is about the functions that wrote the store")
    if on_spark and (workers != 1 or ui or any(each is not None for each in (hosts, monitor, events))):
        raise typer.BadParameter(
            "--engine spark runs without workers of Falkirk: leave -w, --hosts, --monitor, --ui and --events away"
        )
    if not on_spark and on is not None and (store is None or hosts is not None or monitor is not None):
        raise typer.BadParameter("--on goes with --store, and without --hosts and --monitor")
    if start_limit is not None and on is None:
        raise typer.BadParameter("--start-limit goes with --on: it is for the executors of a cluster")
    if spark_conf and on is None and not on_spark:
        raise typer.BadParameter("--spark-conf goes with --on: which Spark are the settings for?")
    arguments, most_bytes = parse_arguments(arg or []), parse_size(max_bytes)
    address = None
    if store is not None:
        from runtime.supervisor.starting import begin

        address = _address(store, "--store")
        begin(address)
    if workers > 1 or (store is not None and not on_spark) or ui:
        _load_beside(workers)
    from falkirk.run_program import Show, run_program, say
    from runtime.program import parse_program
    from runtime.sources.limits import Limits

    how = "quiet" if quiet else "json" if as_json else "auto"
    show = Show(how, every or (1.0 if as_json else 5.0), traceback, store is not None)
    app_program, limits = parse_program(program, arguments), Limits(max_epochs, most_bytes)

    def job(on_stats: OnStats) -> Result:
        if hosts is not None and index is not None:
            from runtime.hosts.host import HostFile, run_host

            return run_host(app_program, HostFile.load(hosts), index, limits, on_stats=on_stats)
        from falkirk.run_job import run

        def note(text: str) -> None:
            say(text, "note")

        return run(
            app_program,
            workers,
            limits,
            on_stats=on_stats,
            store=address,
            on_note=note,
            heartbeat_timeout=heartbeat_timeout,
            monitor=monitor,
            ui=page,
            events=events,
            on=None
            if on is None and not spark_conf
            else spark_options(on or "local[*]", spark_conf or [], start_limit),
            engine=engine,
            accept=[name for names in accept or [] for name in names.split(",")],
            mates=mates,
        )

    title = os.path.basename(app_program.path or "program") + (f":{app_program.name}" if app_program.name else "")
    _leave(run_program(job, title, workers, show))


def _address(text: str, hint: str = "STORE") -> StoreAddress:
    """Address of a store, as given on the command line; raises typer.BadParameter."""
    from recovery.store.address import StoreAddress
    from recovery.store.interface import StoreError

    try:
        return StoreAddress.of(text)
    except StoreError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def _check_there(address: StoreAddress, hint: str = "STORE") -> None:
    """Raise typer.BadParameter without a store at the address."""
    from recovery.store.interface import StoreError

    try:
        address.open().close()
    except StoreError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def _load_beside(workers: int) -> None:
    """Preload modules in the process to fork workers from, beside this one."""
    from runtime.supervisor.forked import environment, prepare

    prepare(environment(workers))


@app.command()
def stop(
    store: StoreName,
    savepoint: Annotated[
        bool,
        typer.Option(
            "--savepoint",
            help="Complete, save and publish all that was read first: nothing is read again. A job that cannot, goes on.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.0, metavar="SECONDS", help="How long that may take.")
    ] = 60.0,
) -> None:
    """Stop the job of a store, cleanly: run again with that store, it goes on."""
    from runtime.supervisor.starting import starts

    address = _address(store)
    if not starts(address):
        _check_there(address)
    from runtime.supervisor.stop import stop_job

    def ask() -> int:
        print(
            f"stopped the job of {address}" if stop_job(address, timeout, savepoint) else f"no job is using {address}"
        )
        return 0

    _guarded(ask, traceback=False)


PagePort = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, metavar="N", help="Where. [default: 8642, or any that is free]"),
]
PageHost = Annotated[
    str,
    typer.Option(
        "--host", metavar="ADDRESS", help="For whom: other than loopback, the address has a token that lets in."
    ),
]


@app.command(epilog="Ctrl-C ends the page; jobs never notice. A page ends with nothing else.")
def page(
    jobs: Annotated[
        list[str],
        typer.Argument(
            metavar="STORE|BUNDLE...",
            help="Stores of jobs that run, have ended, or were killed; bundles of falkirk bundle.",
            show_default=False,
        ),
    ],
    port: PagePort = None,
    host: PageHost = "127.0.0.1",
) -> None:
    """Serve the page of jobs, running or not, in one list."""
    _serve_page(jobs, port, host)


@app.command()
def inspect(
    store: StoreName,
    port: PagePort = None,
    host: PageHost = "127.0.0.1",
) -> None:
    """Serve the page of one job from its store, running or not: as falkirk page."""
    _serve_page([store], port, host)


def _serve_page(jobs: list[str], port: int | None, host: str) -> None:
    from pathlib import Path

    files = [job for job in dict.fromkeys(jobs) if "\0" not in job and Path(job).is_file()]
    addresses = [_address(job) for job in dict.fromkeys(jobs) if job not in files]

    def look() -> int:
        from falkirk.page_view import serve_page

        serve_page(addresses, [Path(file) for file in files], port, host)
        return 0

    _guarded(look, traceback=False)


@app.command()
def bundle(
    store: StoreName,
    out: Annotated[
        str | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="Where. [default: the store's name with .zip]", show_default=False
        ),
    ] = None,
) -> None:
    """Write a job without its data into one file, for falkirk page elsewhere."""
    address = _address(store)

    def make() -> int:
        from falkirk.page_view import make_bundle

        return make_bundle(address, out)

    _guarded(make, traceback=False)


@app.command(
    epilog="Exit codes: 0 it runs, or was stopped on purpose, or has ended; 10 stuck, 11 failed, 12 killed, 13 no job, 14 its "
    "monitor does not answer; 1 and 2 as for run."
)
def status(
    store: StoreName,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Print the state of a store's job, with an exit code for each."""
    address = _address(store)
    from falkirk.status_view import status_command

    _guarded(lambda: status_command(address, as_json), traceback=False)


@app.command(epilog="Ctrl-\\\\ prints them too, in the terminal of the job. They are there only while the job runs.")
def stacks(
    store: StoreName,
    place: Annotated[
        str | None, typer.Argument(metavar="PLACE", help="worker-1, or monitor. [default: all]", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Print the Python stacks of a running job's processes, with their operators."""
    address = _address(store)
    from falkirk.stacks_view import stacks_command

    _guarded(lambda: stacks_command(address, place, as_json), traceback=False)


@app.command(epilog="A running job is not disturbed. The newest state is that of the last checkpoint.")
def state(
    program: ProgramName,
    store: StoreName,
    operator: Annotated[
        str | None,
        typer.Argument(metavar="OPERATOR", help="Whose state. [default: list all that have some]", show_default=False),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(metavar="EPOCH", help="After this epoch. [default: the newest saved]", show_default=False),
    ] = None,
    since: Annotated[
        int | None, typer.Option(metavar="EPOCH", help="Only what has changed after this epoch.", show_default=False)
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write a .parquet, .csv or .jsonl file.", show_default=False),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="Rows to print.")] = 20,
    arg: Arguments = None,
    traceback: Traceback = False,
) -> None:
    """Print an operator's saved state as a table, or list operators with state."""
    arguments, address = parse_arguments(arg or []), _address(store)
    if operator is None and (at is not None or since is not None or out is not None):
        raise typer.BadParameter(
            "goes with an operator: falkirk state APP.PY STORE OPERATOR", param_hint="--at, --since, -o"
        )

    def show() -> int:
        from falkirk.state_view import list_states, show_state
        from runtime.program import parse_program

        reads = parse_program(program, arguments), address
        return list_states(*reads) if operator is None else show_state(*reads, operator, at, since, out, rows)

    _guarded(show, traceback)


@app.command(epilog="A job that runs with the store must be stopped first: falkirk stop STORE.")
def upgrade(
    program: ProgramName,
    store: Annotated[str, typer.Option("--store", metavar="STORE", help="The store of the job.", show_default=False)],
    rename: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORMER=NEW",
            help="An operator that has another name now. One with its own name confirms that it is the same. May be given "
            "several times.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would become of each operator.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array; goes with --dry-run or --yes.")] = False,
    arg: Arguments = None,
    traceback: Traceback = False,
) -> None:
    """Give a stopped job another program; its operators keep their state."""
    arguments, address = parse_arguments(arg or []), _address(store, "--store")
    if as_json and not (dry_run or yes):
        raise typer.BadParameter("goes with --dry-run or --yes", param_hint="--json")
    renames = {}
    for each in rename or ():
        former, equals, new = each.partition("=")
        if not (former and equals and new):
            raise typer.BadParameter(f"{each!r} is not FORMER=NEW", param_hint="--rename")
        renames[former] = new

    def change() -> int:
        from falkirk.upgrade_view import upgrade_command
        from runtime.program import parse_program

        return upgrade_command(parse_program(program, arguments), address, renames, dry_run, yes, as_json)

    _guarded(change, traceback)


@app.command()
def whatif(
    target: Annotated[
        str, typer.Argument(metavar="STORE|URL", help="The store of the job, or the address of its page.")
    ],
    kill: Annotated[
        list[str] | None,
        typer.Option(metavar="WHO", help="Who fails: worker:1, an operator (count), or one on a worker (count@1)."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGION=POLICY",
            help='Another policy of a region instead: "circles=Batch(log_outputs=True)"; nothing before the = is what is in '
            "no region. Shows what that would change in exposure, bytes and processor time.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON, as the page gets it.")] = False,
) -> None:
    """Estimate the cost of a failure, or what another policy would change.

    Of a failure: rollback of each operator, work done again.
    """
    from falkirk.other_policies_view import other_policies_command
    from falkirk.what_if_view import what_if_command

    if policy and kill:
        raise typer.BadParameter("give either --kill or --policy")
    if policy:
        _guarded(lambda: other_policies_command(target, policy, as_json), traceback=False)
    _guarded(lambda: what_if_command(target, kill or [], as_json), traceback=False)


@app.command(name="monitor")
def monitor_apart(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store whose jobs it is to monitor.")],
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Listen at this path, a unix socket. [default: beside the store]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Monitor jobs from a process apart: falkirk run --store STORE --monitor STORE."""
    address = _address(store)

    def watch() -> int:
        from falkirk.run_program import say
        from runtime.processes.standalone_monitor import serve

        serve(address, listen, lambda text: say(text, "monitor"))
        return 0

    _guarded(watch, traceback=False)


@app.command()
def keys(
    file: Annotated[str, typer.Argument(metavar="HOSTS.TOML", help="The host file to write.")],
    workers: Annotated[int, typer.Option("-w", "--workers", min=1, max=MOST_WORKERS, help="How many workers.")],
    address: Annotated[
        list[str] | None,
        typer.Option(metavar="tcp://HOST:PORT", help="Where each worker listens, in order.", show_default=False),
    ] = None,
) -> None:
    """Make the host file and the keys of a job on several hosts."""
    from runtime.hosts.host import create_host_files

    def make() -> int:
        create_host_files(file, workers, address or ())
        print(f"wrote {file} for every host, and a secret key beside it for each: see docs/hosts.md")
        return 0

    _guarded(make, traceback=False)


@app.command()
def graph(
    program: ProgramName,
    arg: Arguments = None,
    tree: Annotated[bool, typer.Option("--tree", help="Draw it in the terminal (the default).")] = False,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print it as a Mermaid flowchart.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    schemas: Annotated[bool, typer.Option("--schemas", help="With the columns of streams, and their types.")] = False,
    traceback: Traceback = False,
) -> None:
    """Show the dataflow of a program, without running it."""
    if tree + mermaid + as_json > 1:
        raise typer.BadParameter("--tree, --mermaid and --json exclude each other")
    arguments = parse_arguments(arg or [])
    from falkirk.graph_view import show_graph
    from runtime.program import parse_program

    form = "mermaid" if mermaid else "json" if as_json else "tree"
    _guarded(lambda: show_graph(parse_program(program, arguments), form, schemas), traceback)


@app.command()
def explain(
    program: ProgramName,
    arg: Arguments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    traceback: Traceback = False,
) -> None:
    """Explain the guarantee of each output under failures, with reason and remedy."""
    arguments = parse_arguments(arg or [])

    def show() -> int:
        from falkirk.explain_view import explain_program
        from runtime.program import parse_program

        return explain_program(parse_program(program, arguments), as_json)

    _guarded(show, traceback)


@app.command(
    epilog="Exit codes: 0 all well, 1 a seed failed or the program did, 2 wrong usage. A failing seed is printed with the line "
    "that shows the same run again, and with the few faults that it takes."
)
def simulate(
    program: ProgramName,
    seeds: Annotated[int, typer.Option(min=1, max=LARGEST, metavar="N", help="How many seeds.")] = 100,
    first_seed: Annotated[int, typer.Option(min=0, max=LARGEST, metavar="K", help="The first of them.")] = 0,
    faults: Annotated[
        str,
        typer.Option(
            metavar="KIND,...", help="Kinds of faults: kill, monitor, job, network, zombie, disk. [default: all]"
        ),
    ] = "",
    workers: Annotated[int, typer.Option("-w", "--workers", min=1, max=64, help="How many simulated workers.")] = 2,
    mates: Annotated[
        int, typer.Option(min=0, max=1, metavar="N", help="Mates of each worker, which die as well: 0 or 1.")
    ] = 0,
    keep: Annotated[
        str | None,
        typer.Option(metavar="I,...", help="Of the one seed only these faults, or none.", show_default=False),
    ] = None,
    arg: Arguments = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show nothing but failures.")] = False,
    traceback: Traceback = False,
) -> None:
    """Run a program under seeded failures, and compare its outputs with a safe run."""
    kept = None if keep is None else [] if keep == "none" else keep.split(",")
    if kept is not None and (seeds != 1 or not all(number.strip().isdecimal() for number in kept)):
        raise typer.BadParameter("goes with --seeds 1, and is a list of numbers such as 0,3", param_hint="--keep")
    arguments = parse_arguments(arg or [])

    def run_seeds() -> int:
        from falkirk.simulate.command import simulate_command
        from falkirk.simulate.faults import KINDS, kinds_of
        from runtime.program import parse_program

        kinds = kinds_of(faults) if faults else tuple(KINDS)
        numbers = None if kept is None else [int(number) for number in kept]
        return simulate_command(
            parse_program(program, arguments), seeds, first_seed, kinds, workers, numbers, quiet, mates
        )

    _guarded(run_seeds, traceback)


@app.command()
def demo(
    workers: Annotated[
        int, typer.Option("-w", "--workers", min=1, max=MOST_WORKERS, help="How many worker processes.")
    ] = 2,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="Kill nobody: the plain run.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Show the verdict only.")] = False,
    traceback: Traceback = False,
) -> None:
    """Run the demo: a year of flights, with a page, and a worker killed midway."""
    _load_beside(workers)
    from falkirk.demo import run_demo

    _guarded(lambda: run_demo(workers, quiet, not no_kill), traceback)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def bench(context: typer.Context) -> None:
    """Measure: `falkirk bench --help` lists the benchmarks."""
    from falkirk.bench import bench_command

    own = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    own.command()(bench_command)

    own(args=context.args, prog_name="falkirk bench")


@app.command()
def doctor(
    folder: Annotated[
        str, typer.Option("--store", metavar="DIR", help="The folder whose disk is measured.", show_default=False)
    ] = ".",
    job: Annotated[
        str | None,
        typer.Option(
            "--run", metavar="STORE", help="Show the memory of the job that uses this store.", show_default=False
        ),
    ] = None,
) -> None:
    """Check this machine for all needs of Falkirk, with a remedy for each lack."""
    if job is not None:
        address = _address(job, "--run")
        _check_there(address, "--run")
        from falkirk.job_memory import show_memory

        _guarded(lambda: show_memory(address), traceback=False)
        return
    from falkirk.doctor import examine

    _guarded(lambda: examine(folder), traceback=False)


@app.command()
def prepare() -> None:
    """Record Java's classes for Spark, for starts in half the time; needs 200 MB."""
    from falkirk.prepare_spark import prepare_spark

    _guarded(prepare_spark, traceback=False)


def main() -> None:
    """Run the command line application.

    Its entry point, which has seen to Ctrl-C, is in `falkirk.command`.
    """
    _open_standard_streams()
    app()


def _open_standard_streams() -> None:
    """Open /dev/null for closed standard streams (`>&-`).

    A file opened later would get their numbers.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def falkirk_version() -> str:
    """The version of the installed package, or of the source tree around this file."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("falkirk")
    except PackageNotFoundError:
        pass
    from pathlib import Path

    project = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if not project.is_file():
        return "of unknown version"
    import tomllib

    return str(tomllib.loads(project.read_text())["project"]["version"])


def _guarded(action: Callable[[], int], traceback: bool) -> NoReturn:
    """Run an action other than a job, and exit with its code."""
    from falkirk.failures import explain
    from falkirk.run_program import say

    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = action()
    except KeyboardInterrupt:
        say("by Ctrl-C", "stopped")
        code = 130
    except BrokenPipeError:
        raise  # whoever read the output has gone, as in `falkirk graph app.py | head`: Typer ends that quietly
    except (Exception, SystemExit) as error:
        if isinstance(error.__context__, BrokenPipeError):  # the same, met by rich, which has ended the output
            _leave(1)
        if traceback:
            from traceback import print_exception

            print_exception(error)
        failure = explain(error)
        say(failure.message)
        code = failure.code
    _leave(code)


def _leave(code: int) -> NoReturn:
    from falkirk.run_program import leave

    leave(code)
