"""Host file: addresses and public keys of a job's workers.

    [[workers]]
    address = "tcp://10.0.0.5:7700"
    public_key = "..."
    bind = "tcp://0.0.0.0:7700"      # optional: where it listens, if that is not its address

Every host has a copy. The secret key of worker 1 of `hosts.toml` is in `hosts-1.key` beside it, on its own host only.
"""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq

from recovery.place import Place, places
from runtime.links.zeromq_sockets import ADVICE, Keys
from timely.errors import FalkirkError

FIRST_PORT = 7700

_MOST = 1 << 20
"""Maximum length of a host file, in characters."""

_HEAD = """\
# The workers of one job, in order. Every host needs a copy of this file; the secret key of worker I is in {stem}-I.key,
# which belongs on the host of worker I alone. Start each with: falkirk run app.py --hosts {name} --index I
# `bind = "tcp://0.0.0.0:port"` is where a worker listens when the others reach it by another address.
"""


@dataclass(frozen=True, slots=True)
class HostEntry:
    """Entry of one worker: address, public key and listening address.

    `address`: `tcp://host:port`, or `ipc://path` on one host and without a key. `bind`: where it listens, if that is
    another.
    """

    address: str
    public_key: str | None = None
    bind: str | None = None


@dataclass(frozen=True, slots=True)
class HostFile:
    """Workers of a job on several hosts, from a host file."""

    path: Path
    workers: tuple[HostEntry, ...]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> HostFile:
        """Read a host file.

        Raises FalkirkError, which names the entry, when it is missing or makes no sense.
        """
        path = Path(path)
        try:
            data = tomllib.loads(_read_small(path))
        except OSError as error:
            raise FalkirkError(
                f"the host file {path} cannot be read: {error.strerror}; make it with falkirk keys"
            ) from error
        except ValueError as error:
            raise FalkirkError(f"the host file {path} is not TOML: {error}") from error
        entries = data.get("workers")
        if not isinstance(entries, list) or not entries or set(data) != {"workers"}:
            raise FalkirkError(f"the host file {path} must hold [[workers]], one for each worker, and nothing else")
        workers = tuple(_entry(f"worker {index} in {path}", entry) for index, entry in enumerate(entries))
        for field in ("address", "public_key"):
            values = [value for entry in workers if (value := getattr(entry, field)) is not None]
            if len(set(values)) < len(values):
                raise FalkirkError(f"two workers in {path} have the same {field.replace('_', ' ')}")
        if not all(entry.public_key for entry in workers) and any(entry.public_key for entry in workers):
            raise FalkirkError(f"in {path} some workers have a public_key and some have none")
        return cls(path, workers)

    @property
    def addresses(self) -> dict[Place, str]:
        return {place: entry.address for place, entry in zip(places(len(self.workers)), self.workers)}

    def key_path(self, index: int) -> Path:
        """Path of the secret key of worker `index`."""
        return self.path.with_name(f"{self.path.stem}-{index}.key")

    def keys(self, index: int) -> Keys | None:
        """Keys for worker `index`; None for workers on one host without keys.

        Raises FalkirkError when the secret key is missing, is not the one that belongs to the public key, or can be read
        by other users of this host.
        """
        if not 0 <= index < len(self.workers):
            raise FalkirkError(f"{self.path} has workers 0 to {len(self.workers) - 1}, not {index}")
        if self.workers[index].public_key is None:
            return None
        path = self.key_path(index)
        try:
            mode = path.stat().st_mode
            secret = tomllib.loads(_read_small(path)).get("secret_key")
        except OSError as error:
            raise FalkirkError(f"the secret key of worker {index}, {path}, cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise FalkirkError(f"{path} is not a key file: {error}") from error
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise FalkirkError(f"other users can read the secret key {path}: chmod 600 {path}, or make new keys")
        public = {place: entry.public_key or "" for place, entry in zip(places(len(self.workers)), self.workers)}
        if not isinstance(secret, str) or _public_key(secret) != public[Place(index)]:
            raise FalkirkError(f"the key in {path} is not the one that {self.path} gives for worker {index}: {ADVICE}")
        return Keys(secret, public)


def create_host_files(path: str | os.PathLike[str], workers: int, addresses: Sequence[str] = ()) -> HostFile:
    """Create keys, a host file, and a secret key file for each worker.

    Secret key files are readable by their owner only.

    Without `addresses`, workers are on this host alone: 127.0.0.1, ports 7700 and up. Raises FalkirkError when one of the
    files is there already.
    """
    path = Path(path)
    if not zmq.has("curve"):
        raise FalkirkError("this build of ZeroMQ has no CURVE encryption: install pyzmq from its wheel")
    addresses = list(addresses) or [f"tcp://127.0.0.1:{FIRST_PORT + index}" for index in range(workers)]
    if workers < 1 or len(addresses) != workers:
        raise FalkirkError(f"{workers} workers need as many addresses, not {len(addresses)}")
    pairs = [zmq.curve_keypair() for _ in addresses]
    hosts = HostFile(path, tuple(HostEntry(address, pair[0].decode()) for address, pair in zip(addresses, pairs)))
    for index, entry in enumerate(hosts.workers):
        _entry(f"worker {index}", {"address": entry.address, "public_key": entry.public_key})
    for file in (path, *(hosts.key_path(index) for index in range(workers))):
        if file.exists():
            raise FalkirkError(f"{file} is there already, and a job may use it: remove it, or choose another name")
    for index, (_, secret) in enumerate(pairs):
        text = (
            f'# Secret key of worker {index} of {path.name}: for its own host only.\nsecret_key = "{secret.decode()}"\n'
        )
        _write_new(hosts.key_path(index), text, 0o600)
    text = _HEAD.format(stem=path.stem, name=path.name) + "".join(
        f'\n[[workers]]\naddress = "{entry.address}"\npublic_key = "{entry.public_key}"\n' for entry in hosts.workers
    )
    _write_new(path, text, 0o644)
    return hosts


def _entry(what: str, entry: Any) -> HostEntry:
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise FalkirkError(f"{what} must have an address and a public_key, both text")
    if unknown := set(entry) - {"address", "public_key", "bind"}:
        raise FalkirkError(f"{what} has {', '.join(sorted(unknown))}; known are address, public_key and bind")
    found = HostEntry(entry.get("address", ""), entry.get("public_key"), entry.get("bind"))
    for address in filter(None, (found.address, found.bind)):
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 0
        tcp = address.startswith("tcp://") and host and 0 < number < 1 << 16
        if not tcp and not address.removeprefix("ipc://") != address:
            raise FalkirkError(f"{what} has the address {address!r}; give one such as tcp://10.0.0.5:{FIRST_PORT}")
    if not found.address:
        raise FalkirkError(f"{what} has no address")
    if found.public_key is None and not found.address.startswith("ipc://"):
        raise FalkirkError(f"{what} has no public_key: make the file with create_host_files()")
    if found.public_key is not None and len(found.public_key) != 40:
        raise FalkirkError(f"{what} has a public_key that is not 40 characters long")
    return found


def _public_key(secret: str) -> str | None:
    try:
        return bytes(zmq.curve_public(secret.encode())).decode()
    except (zmq.ZMQError, ValueError):
        return None


def _read_small(path: Path) -> str:
    """Text of a small regular file.

    Raises OSError for anything else, which might never end.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    with open(path, encoding="utf-8") as file:
        text = file.read(_MOST + 1)
    if len(text) > _MOST:
        raise ValueError(f"it has more than {_MOST:,} characters")
    return text


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise FalkirkError(f"{path} cannot be written: {error.strerror}") from error
    with os.fdopen(file, "w", encoding="ascii") as out:
        out.write(text)
