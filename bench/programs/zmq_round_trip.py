"""64 bytes there and back between two processes, over a ZeroMQ PAIR on ipc: the floor under any exchange, in µs."""

from __future__ import annotations

import multiprocessing
import tempfile
import time

import zmq
from common import arguments, percentile, report


def echo(address: str, trips: int) -> None:
    """Send back whatever comes."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.connect(address)
        for _ in range(trips):
            socket.send(socket.recv())


def main() -> None:
    args = arguments()
    warm_up = args.size // 10
    message = bytes(64)
    trips: list[float] = []
    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        address = f"ipc://{folder}/pair"
        socket.bind(address)
        other = multiprocessing.get_context("spawn").Process(target=echo, args=(address, warm_up + args.size))
        other.start()
        for _ in range(warm_up + args.size):
            start = time.perf_counter()
            socket.send(message)
            if socket.recv() != message:
                raise SystemExit("the echo is not what was sent")
            trips.append((time.perf_counter() - start) * 1e6)
        other.join()
    trips = sorted(trips[warm_up:])
    report(percentile(trips, 0.5), p99=percentile(trips, 0.99))


if __name__ == "__main__":
    main()
