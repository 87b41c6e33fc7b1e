"""Records per second into and out of the embedded log, beside a bare loop over the same bytes: `make bench-log`.

The loop packs the records in the log's format, compresses and checksums them and writes them to a file of its own; or
it reads that file, checks, decompresses and unpacks. It takes no lock, looks for no other process, checks no type,
keeps no index and repairs nothing. Both run in the same process, taking turns; the best of some rounds counts, and
the ratios more than the rates.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import struct
import tempfile
import time
from itertools import repeat
from pathlib import Path
from typing import Any
from zlib import crc32

import lz4.block
import msgspec

from headwater.state.log import Log, Partition
from headwater.state.log.batch import Headers, NewRecord

# Records per batch: batches without and with a sync after each.
CASES = {1: (5_000, 200), 100: (1_000, 200), 10_000: (20, 10)}

FIELDS = struct.Struct("<4sBBHIIqqqqIIqq")
CRC = struct.Struct("<I")
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(
    tuple[list[bytes | None], list[bytes | None], list[int], list[Headers] | None, list[int] | None]
).decode


def records(count: int) -> list[NewRecord]:
    """Orders of many customers, as JSON of about 60 bytes."""
    rng = random.Random(7)
    return [
        (
            b"user-%06d" % rng.randrange(100_000),
            b'{"amount":%d,"country":"DE","item":"%08x"}' % (rng.randrange(1_000), rng.randrange(2**32)),
            1_700_000_000_000 + number,
            (),
        )
        for number in range(count)
    ]


def loop_append(path: Path, batch: list[NewRecord], batches: int, sync: bool) -> float:
    """Seconds to write the batches with as little as the format asks for."""
    count, offset = len(batch), 0
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    begin = time.perf_counter()
    for _ in range(batches):
        keys, values, times, headers = zip(*batch, strict=True)
        body = encode((keys, values, times, headers if any(headers) else None, None))
        raw, codec = len(body), 0
        if raw >= 512:
            body, codec = lz4.block.compress(body, store_size=False), 1
        head = FIELDS.pack(
            b"HWLB", 1, codec, 0, len(body), raw, offset, offset + count - 1, min(times), max(times), count,
            crc32(body), -1, 0,
        )  # fmt: skip
        os.write(fd, b"".join((head, CRC.pack(crc32(head)), body)))
        offset += count
        if sync:
            os.fdatasync(fd)
    seconds = time.perf_counter() - begin
    os.close(fd)
    return seconds


def log_append(partition: Partition, batch: list[NewRecord], batches: int, sync: bool) -> float:
    begin = time.perf_counter()
    for _ in range(batches):
        partition.append(batch, sync=sync)
    return time.perf_counter() - begin


def loop_read(path: Path) -> tuple[float, int]:
    """Seconds to read all records of the loop's file, and their number."""
    begin = time.perf_counter()
    found = 0
    with path.open("rb", buffering=0) as file:
        rest = b""
        while chunk := file.read(256 << 10):
            data = memoryview(rest + chunk)
            at, there = 0, len(data)
            while there - at >= 76:
                _, _, codec, _, size, raw, base, last, _, _, _, crc, _, _ = FIELDS.unpack_from(data, at)
                if at + 76 + size > there:
                    break
                if crc32(data[at : at + 72]) != CRC.unpack_from(data, at + 72)[0]:
                    raise ValueError("bad header")
                body = data[at + 76 : at + 76 + size]
                if crc32(body) != crc:
                    raise ValueError("bad body")
                if codec:
                    body = lz4.block.decompress(body, uncompressed_size=raw)
                keys, values, times, headers, _ = decode(body)
                found += len(list(zip(keys, values, times, headers or repeat(()), range(base, last + 1), strict=False)))
                at += 76 + size
            rest = bytes(data[at:])
    return time.perf_counter() - begin, found


def log_read(partition: Partition) -> tuple[float, int]:
    begin = time.perf_counter()
    found = offset = 0
    while some := partition.read(offset):
        found += len(some)
        offset = some[-1][4] + 1
    return time.perf_counter() - begin, found


def measure(repeats: int) -> list[dict[str, Any]]:
    """One row per batch size and way, each the best of some rounds in which loop and log take turns."""
    rows = []
    gc.freeze()
    for size, (unsynced, synced) in CASES.items():
        batch = records(size)
        for sync, batches in ((False, unsynced), (True, synced)):
            best: dict[str, float] = {}
            for number in range(repeats):
                with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder, Log.open(folder) as log:
                    log.create_topic("bench")
                    runs = {"append loop": loop_append(Path(folder, "loop"), batch, batches, sync)}
                    with log.partition("bench", 0) as partition:
                        runs["append log"] = log_append(partition, batch, batches, sync)
                    if not sync:
                        runs["read loop"], one = loop_read(Path(folder, "loop"))
                        with log.partition("bench", 0) as partition:
                            runs["read log"], other = log_read(partition)
                        assert one == other == batches * size, f"{one} records in the loop's file, {other} in the log"
                    if number == 0 and not sync:
                        files = [Path(folder, "loop").read_bytes()]
                        files.append(b"".join(path.read_bytes() for path in sorted(Path(folder).rglob("*.log"))))
                        assert files[0] == files[1], "the loop and the log have written different bytes"
                for way, seconds in runs.items():
                    best[way] = min(best.get(way, seconds), seconds)
            for what in ("append", "read")[: 1 if sync else 2]:
                rows.append(
                    {
                        "what": what + (", sync" if sync else ""),
                        "batch": size,
                        "loop": batches * size / best[f"{what} loop"],
                        "log": batches * size / best[f"{what} log"],
                    }
                )
    return rows


def main() -> None:
    """Measure and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.repeats)
    if options.json:
        print(json.dumps(rows))
        return
    print("records per second; a key of 11 and a value of about 45 bytes, lz4 from 512 bytes on\n")
    print(f"{'':<14}{'batch':>8}{'loop':>12}{'log':>12}{'ratio':>8}")
    for row in rows:
        loop, log = row["loop"], row["log"]
        print(f"{row['what']:<14}{row['batch']:>8,}{loop:>12,.0f}{log:>12,.0f}{log / loop:>7.2f}x")


if __name__ == "__main__":
    main()
