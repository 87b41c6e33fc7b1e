"""Records as lines of JSON: what `consume --json` prints, `produce --json-lines` takes and `log export` writes. It owns
the fields and how bytes are written; where lines come from and go to is others'.

| field | what |
|---|---|
| `topic`, `partition`, `offset` | where the record was; left out, it has not been anywhere |
| `timestamp` | epoch milliseconds |
| `key`, `value` | text, or null; bytes that are no UTF-8 are `key_base64`, `value_base64` instead |
| `headers` | `[{"name": …, "value": …}, …]` with `value_base64` likewise; also `{"name": "value", …}` when read |

Any other JSON value of `key` or `value` is read as its own JSON text.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import msgspec

from headwater.errors import StreamsError
from headwater.streams.consumer import ConsumerRecord

__all__ = ["Fields", "fields_of", "line_of", "record_of"]

# The arguments of Producer.send that a line gives, and where the record was.
Fields = dict[str, Any]

_KNOWN = {"topic", "partition", "offset", "timestamp", "key", "key_base64", "value", "value_base64", "headers"}
_encode = msgspec.json.Encoder().encode


def line_of(record: ConsumerRecord) -> bytes:
    """The line of a record, with its end.

    >>> line_of(ConsumerRecord("orders", 0, 7, b"ann", None, 1000, (("trace", b"\\xff"),)))
    b'{"topic":"orders","partition":0,"offset":7,"timestamp":1000,"key":"ann","value":null,\
"headers":[{"name":"trace","value_base64":"/w=="}]}\\n'
    """
    fields: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    _put(fields, "key", record.key)
    _put(fields, "value", record.value)
    fields["headers"] = [_put({"name": name}, "value", value) for name, value in record.headers]
    return _encode(fields) + b"\n"


def _put(fields: dict[str, object], name: str, data: bytes | None) -> dict[str, object]:
    try:
        fields[name] = None if data is None else data.decode()
    except UnicodeDecodeError:
        fields[f"{name}_base64"] = base64.b64encode(data or b"").decode()
    return fields


def fields_of(where: str, line: bytes) -> Fields:
    """What a line says: value, and as far as it has them key, headers, timestamp, topic, partition and offset."""
    try:
        given = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StreamsError(f"{where}: the line is no JSON object: {error}.") from error
    if unknown := given.keys() - _KNOWN:
        known = ", ".join(sorted(_KNOWN))
        raise StreamsError(f"{where}: there is no field {', '.join(sorted(unknown))}, only {known}.")
    if not given.keys() & {"value", "value_base64"}:
        raise StreamsError(f"{where}: the value is missing; write null for a tombstone.")
    fields: Fields = {"value": _bytes(where, given, "value")}
    if given.keys() & {"key", "key_base64"}:
        fields["key"] = _bytes(where, given, "key")
    for name in ("partition", "timestamp", "offset"):
        if given.get(name) is not None:
            if type(given[name]) is not int:
                raise StreamsError(f"{where}: {name} is a whole number and not {given[name]!r}.")
            fields[name] = given[name]
    if given.get("topic") is not None:
        if not isinstance(given["topic"], str):
            raise StreamsError(f"{where}: topic is a name and not {given['topic']!r}.")
        fields["topic"] = given["topic"]
    if given.get("headers"):
        fields["headers"] = tuple(_headers(where, given["headers"]))
    return fields


def record_of(fields: Fields, topic: str, timestamp: int) -> ConsumerRecord:
    """The record that fields make, with a topic and a time for one that says none; without a place it is in -1."""
    return ConsumerRecord(
        fields.get("topic", topic),
        fields.get("partition", -1),
        fields.get("offset", -1),
        fields.get("key"),
        fields["value"],
        fields.get("timestamp", timestamp),
        fields.get("headers", ()),
    )


def _bytes(where: str, given: Fields, name: str) -> bytes | None:
    if f"{name}_base64" in given:
        try:
            return base64.b64decode(given[f"{name}_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise StreamsError(f"{where}: {name}_base64 is not base64: {error}.") from error
    value = given.get(name)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _headers(where: str, given: object) -> Iterator[tuple[str, bytes | None]]:
    if isinstance(given, dict):
        given = [{"name": name, "value": value} for name, value in given.items()]
    for header in given if isinstance(given, list) else [given]:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise StreamsError(
                f'{where}: headers are {{"NAME": "VALUE", …}} or [{{"name": …, "value": …}}, …] and not {given!r}.'
            )
        yield header["name"], _bytes(where, header, "value")
