"""The jobs of `make bench-spark`, each twice: as a topology, and by hand in PySpark as one who knows it writes it.

By hand means Spark's own expressions and windows where they suffice, and `applyInPandasWithState`, vectorised within
each group, where an update per record is wanted; times are numbers there, since pandas takes long over timestamps.
Nobody sorts: within a group Spark hands on the order it read, though it does not promise to. `digest` is what must come
out alike, as SQL over the results of either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from headwater import Json, StreamsBuilder, TimeWindows, Topology, agg, col

MINUTE = timedelta(minutes=1)
MINUTE_MS = 60_000
GRACE = timedelta(seconds=10)
GRACE_MS = 10_000
ORDER = "user string, amount long, item string, paid boolean"


class Order(msgspec.Struct):
    """The value of a record in `orders`; its user is the record's key too."""

    user: str
    amount: int
    item: str
    paid: bool


@dataclass(frozen=True)
class Job:
    """A topology, the same by hand, how fast the one is to be beside the other, and how often they take turns."""

    name: str
    aim: float
    topology: Callable[[], Topology]
    by_hand: Callable[[Mapping[str, DataFrame]], DataFrame]
    digest: tuple[str, str]
    topics: tuple[str, ...] = ("orders",)
    rounds: int = 3


def parsed(frame: DataFrame) -> DataFrame:
    """Records of `orders` from Kafka: key, order, timestamp."""
    order = F.from_json(F.col("value").cast("string"), ORDER)
    return frame.select(F.col("key").cast("string").alias("key"), order.alias("order"), "timestamp")


# ---- a chain of expressions ---------------------------------------------------------------------------------------


def chain() -> Topology:
    """The larger orders, doubled."""
    builder = StreamsBuilder(value=Json(type=Order))
    large = builder.stream("orders").filter(col("amount") > 10)
    large.select(item=col("item"), total=col("amount") * 2).to("large", value=Json())
    return builder.build()


def chain_by_hand(frames: Mapping[str, DataFrame]) -> DataFrame:
    """The same in expressions of Spark's."""
    large = parsed(frames["orders"]).where(F.col("order.amount") > 10)
    doubled = F.struct(F.col("order.item").alias("item"), (F.col("order.amount") * 2).alias("total"))
    return large.select("key", F.to_json(doubled).alias("value"), "timestamp")


# ---- a window aggregate, once per key and batch -------------------------------------------------------------------


def per_batch() -> Topology:
    """The sum per user and minute, as of each batch."""
    builder = StreamsBuilder(value=Json(type=Order))
    by_user = builder.stream("orders").group_by(col("user"), name="by-user")
    windows = by_user.windowed_by(TimeWindows.of(MINUTE, grace=GRACE))
    windows.aggregate(total=agg.sum(col("amount")), emit="per-batch", store="sums").to_stream().to("sums")
    return builder.build()


def per_batch_by_hand(frames: Mapping[str, DataFrame]) -> DataFrame:
    """The same in Spark's own aggregation, without the timestamps that our results have."""
    orders = parsed(frames["orders"]).select("order.user", "order.amount", "timestamp")
    windows = orders.withWatermark("timestamp", f"{GRACE_MS} milliseconds").groupBy(
        "user", F.window("timestamp", f"{MINUTE_MS} milliseconds")
    )
    return windows.agg(F.to_json(F.struct(F.sum("amount").alias("total"))).alias("value"))


# ---- a count per record -------------------------------------------------------------------------------------------


def count(topic: str = "orders") -> Topology:
    """How many orders each user has made, with every order."""
    builder = StreamsBuilder(value=Json())
    builder.stream(topic).group_by_key().count(store="counts").to_stream().to("counts", value=Json())
    return builder.build()


def count_by_hand(frames: Mapping[str, DataFrame]) -> DataFrame:
    """The same, a group per user."""
    orders = frames["orders"].select(F.col("key").cast("string").alias("key"), F.unix_millis("timestamp").alias("at"))
    return orders.groupBy("key").applyInPandasWithState(
        _counts, "key string, value long, at long", "total long", "update", GroupStateTimeout.NoTimeout
    )


def _counts(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (total,) = state.get if state.exists else (0,)
    for frame in frames:
        counts = range(total + 1, total + len(frame) + 1)
        total += len(frame)
        yield pd.DataFrame({"key": key[0], "value": counts, "at": frame["at"]})
    state.update((total,))


# ---- a window sum per record --------------------------------------------------------------------------------------


def tumbling() -> Topology:
    """The sum per user and minute, with every order."""
    builder = StreamsBuilder(value=Json())
    windows = builder.stream("orders").group_by_key().windowed_by(TimeWindows.of(MINUTE, grace=GRACE))
    windows.aggregate(lambda: 0, _add, store="sums", value=Json()).to_stream().to("sums")
    return builder.build()


def _add(key: str, order: dict[str, Any], total: int) -> int:
    return total + int(order["amount"])


def tumbling_by_hand(frames: Mapping[str, DataFrame]) -> DataFrame:
    """The same, a group per user, which keeps its open windows in its state and closes them by the watermark."""
    orders = parsed(frames["orders"]).withWatermark("timestamp", f"{GRACE_MS} milliseconds")
    # Beside the number, which is quick in pandas, the watermark needs its column to reach the groups.
    at, amount = F.unix_millis("timestamp").alias("at"), F.col("order.amount").alias("amount")
    return (
        orders.select("key", "timestamp", at, amount)
        .groupBy("key")
        .applyInPandasWithState(
            _sums,
            "key string, start long, value long, at long",
            "sums string",  # as JSON: PySpark fails on arrays and maps in the state of a group
            "update",
            GroupStateTimeout.NoTimeout,
        )
    )


_SUMS = msgspec.json.Decoder(dict[int, int])


def _sums(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    open_until = state.getCurrentWatermarkMs() - MINUTE_MS
    (kept,) = state.get if state.exists else ("{}",)
    sums = {start: total for start, total in _SUMS.decode(kept).items() if start > open_until}
    rows = pd.concat(frames)
    start = rows["at"] - rows["at"] % MINUTE_MS
    taken = start > open_until
    rows, start = rows[taken], start[taken]
    value = rows["amount"].groupby(start).cumsum() + start.map(sums).fillna(0).astype("int64")
    sums |= value.groupby(start).last().to_dict()
    state.update((msgspec.json.encode(sums).decode(),))
    yield pd.DataFrame({"key": key[0], "start": start, "value": value, "at": rows["at"]})


# ---- a join with a table, per record ------------------------------------------------------------------------------


def join() -> Topology:
    """Orders with the city of their user."""
    builder = StreamsBuilder(value=Json())
    users = builder.table("users", store="users")
    builder.stream("orders").join(users, _with_city).to("placed")
    return builder.build()


def _with_city(order: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    return {**order, "city": user["city"]}


def join_by_hand(frames: Mapping[str, DataFrame]) -> DataFrame:
    """The same, a group per user with both kinds of records, JSON read and written by Spark itself."""
    at = F.unix_millis("timestamp").alias("at")
    orders = parsed(frames["orders"]).select("key", at, "order.*")
    city = F.from_json(F.col("value").cast("string"), "city string")["city"]
    users = frames["users"].select(F.col("key").cast("string").alias("key"), at, city.alias("city"))
    fields = ["user", "amount", "item", "paid", "city"]
    placed = (
        orders.unionByName(users, allowMissingColumns=True)
        .groupBy("key")
        .applyInPandasWithState(
            _placed,
            f"key string, at long, {ORDER}, city string",
            "city string",
            "update",
            GroupStateTimeout.NoTimeout,
        )
    )
    return placed.select("key", F.to_json(F.struct(*fields)).alias("value"), "at")


def _placed(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (city,) = state.get if state.exists else (None,)
    rows = pd.concat(frames)
    changes = rows["city"].dropna()
    if len(changes):
        rows = rows.sort_values("at", kind="stable")
        rows["city"] = rows["city"].ffill()
        state.update((rows["city"].iloc[-1],))
    if city is not None:
        rows["city"] = rows["city"].fillna(city)
    placed = rows[rows["user"].notna() & rows["city"].notna()]
    yield placed[["key", "at", "user", "amount", "item", "paid", "city"]]


# Without Python it is the JVM's compiler that decides, which goes on for some millions of records.
NATIVE_ROUNDS = 8
JOBS = [
    Job("filter and select, native", 0.95, chain, chain_by_hand, ("value", "value"), rounds=NATIVE_ROUNDS),
    Job("tumbling sum per batch, native", 0.9, per_batch, per_batch_by_hand, ("value", "value"), rounds=NATIVE_ROUNDS),
    Job("keyed count per record", 1.2, count, count_by_hand, ("value", "value")),
    Job("tumbling sum per record", 1.2, tumbling, tumbling_by_hand, ("value", "value")),
    Job("stream-table join per record", 1.2, join, join_by_hand, ("value", "value"), ("orders", "users")),
]
