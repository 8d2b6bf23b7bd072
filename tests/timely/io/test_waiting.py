"""A process that has more files open than `select.select` can count goes on as if it had few."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import threading

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import Listen
from runtime.session.session import Session
from timely.io.waiting import wait_readable


def test_a_source_whose_files_have_high_numbers_is_read() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1300:
        pytest.skip("this user may not have so many files open")
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        source = Listen(0, connections=1, epoch_lines=1)
        flow = Dataflow("high")
        flow.source("lines", source).capture("out")
        with Session(flow) as session:
            assert source.address is not None

            def send() -> None:
                assert source.address is not None
                with socket.create_connection(source.address, timeout=60) as peer:
                    peer.sendall(b"a\nb\n")

            later = threading.Timer(0.3, send)
            later.start()
            session.run()
            later.join()
            assert [line for _, batch in session.captured("out") for line in batch] == ["a", "b"]
        low, write = os.pipe()  # the collector may just have closed a file with a low number
        read = fcntl.fcntl(low, fcntl.F_DUPFD, 1025)
        os.close(low)
        assert wait_readable([read], 0.01) == []
        os.write(write, b"x")
        assert wait_readable([read]) == [read]
        os.close(write)
        os.close(read)
    finally:
        for file in many:
            os.close(file)
