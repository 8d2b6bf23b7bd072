"""Encoding and hashing of values, for use beyond the process. Type-exact: `decode(encode(x)) == x`, equal
types too.

`batches` is the way in; `records` is the format of values; `standard`, `classes` and `numeric` say how each
type is carried; `tables` carries columns as Arrow IPC. `hashing` is the stable hash that routing and stores
rest on.

Enters: values. Leaves: bytes, and the same values again, on another worker or after a restart.
"""

from timely.data.codec.batches import check_columns, decode, decode_batch, encode, encode_batch
from timely.data.codec.classes import carry, register

__all__ = ["carry", "check_columns", "decode", "decode_batch", "encode", "encode_batch", "register"]
