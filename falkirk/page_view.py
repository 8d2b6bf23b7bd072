"""`falkirk page` and `falkirk bundle`: a page of jobs, and a job in one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from falkirk.run_program import say
from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from runtime.page.address import open_page
from runtime.page.bundle import BundledJob, read_bundle, write_bundle
from runtime.page.followed import JobAtRest
from runtime.page.history import BundledHistory
from runtime.page.process import run_page


def serve_page(stores: Sequence[StoreAddress], bundles: Sequence[Path], port: int | None, host: str) -> None:
    """Serve until interrupted.

    Raises StoreError where something else than a store is, BundleError for what is no bundle, FalkirkError if nobody can
    listen.
    """
    read = [(file, read_bundle(file)) for file in bundles]
    for address in stores:
        with address.open() as store:
            store_id(store)
    names = [*map(str, stores), *map(str, bundles)]
    with closing(open_page(os.path.basename(names[0]) or names[0], host, port)) as page:
        what = f"the job of {names[0]}" if len(names) == 1 else f"{len(names)} jobs"
        say(f"{what}, running or not: {page.url}; Ctrl-C ends this page, and nothing else", "page")
        run_page(stores, page, partial(_at_rest, read))


def _at_rest(read: Sequence[tuple[Path, BundledJob]]) -> list[JobAtRest]:
    found = []
    for number, (file, job) in enumerate(read):
        place = os.fsencode(file).decode(errors="replace")
        history = BundledHistory(job.history)
        at_rest = JobAtRest(f"bundle-{number}", os.path.basename(place), f"{place} (a bundle)", history=history)
        at_rest.show(job)
        found.append(at_rest)
    return found


def make_bundle(address: StoreAddress, out: str | None) -> int:
    """Write a bundle, and print its path; the exit code."""
    file = Path(out) if out is not None else Path(f"{os.path.basename(str(address)) or 'job'}.zip")
    size = write_bundle(address, file)
    print(f"{file}: {size / 1e6:,.1f} MB; falkirk page {file} opens it anywhere")
    return 0
