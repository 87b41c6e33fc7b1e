"""Larger topologies of many kinds of steps."""

from headwater import JoinWindows, Processor, Record, Str, StreamsBuilder, Suppress, Window
from tests.conformance.case import Case
from tests.conformance.chapters.registry import empty, ms, plus, text, zero
from tests.conformance.more_chapters.registry import CLOSE, L, concatenate, hopping, parts, sessions, topology, tumbling


@topology
def orders_enriched(b: StreamsBuilder, case: Case) -> None:
    customers = b.table("customers", store="cust")
    products = b.global_table("products", store="prod")
    (
        b.stream("orders")
        .filter(lambda key, order: order is not None)
        .select_key(lambda key, order: order.split(":")[0])
        .join(customers, lambda order, country: f"{order}:{country}")
        .left_join(
            products,
            lambda order, product: f"{order}:{text(product)}",
            select=lambda key, order: order.split(":")[1],
        )
        .peek(lambda key, order: case.effect(order))
        .group_by(lambda key, order: order.split(":")[3], name="by-country")
        .windowed_by(tumbling(50, 30))
        .aggregate(zero, lambda key, order, total: total + int(order.split(":")[2]), store="revenue", value=L)
        .to_stream()
        .to("out")
    )


@topology
def word_count_windows_and_total(b: StreamsBuilder, case: Case) -> None:
    grouped = b.stream("in").flat_map_values(parts).group_by(lambda key, word: word, name="words")
    total = grouped.count(store="total")
    (
        grouped.windowed_by(tumbling(40, 20))
        .count(store="windowed")
        .to_stream()
        .map(lambda window, n: (window.key, f"{n}@{window.start}"))
        .join(total, lambda value, n: f"{value}/{n}", key=Str(), value=Str(), other_value=L)
        .to("out")
    )


@topology
def four_subtopologies(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("in")
        .group_by(lambda key, value: value, name="one")
        .count(store="c1")
        .to_stream()
        .map(lambda key, n: (f"n{n}", key))
        .group_by_key(name="two", key=Str(), value=Str())
        .aggregate(empty, lambda key, value, aggregate: aggregate + value, store="c2")
        .group_by(lambda key, value: (str(len(value)), key), name="three", key=Str(), value=Str())
        .count(store="c3")
        .to_stream()
        .to("mid")
    )
    (
        b.stream("mid", value=L)
        .group_by_key()
        .reduce(max, store="c4")
        .to_stream()
        .filter(lambda key, value: value > 1)
        .to("out")
    )


@topology
def left_join_then_window(b: StreamsBuilder, case: Case) -> None:
    joined = b.stream("left").left_join(
        b.stream("right"), plus, JoinWindows.of(ms(10), grace=ms(10)), name="j", store="j"
    )
    joined.to("joined")
    (
        joined.select_key(lambda key, value: "lone" if value.endswith("+null") else "matched")
        .group_by_key(name="grp", key=Str(), value=Str())
        .windowed_by(tumbling(50, 100))
        .count(store="counts")
        .suppress(CLOSE)
        .to_stream()
        .to("out")
    )


@topology
def left_join_big_times(b: StreamsBuilder, case: Case) -> None:
    (
        b.stream("left")
        .left_join(b.stream("right"), plus, JoinWindows.of(ms(60_000), grace=ms(30_000)), name="j", store="j")
        .to("out")
    )


@topology
def sessions_and_page_views(b: StreamsBuilder, case: Case) -> None:
    clicks = b.stream("clicks")
    last = (
        clicks.group_by_key()
        .windowed_by(sessions(30, 30))
        .aggregate(
            empty,
            lambda key, value, aggregate: aggregate + text(value),
            merge=lambda key, first, second: first + second,
            store="sessions",
        )
        .to_stream()
        .filter(lambda window, value: value is not None)
        .map(lambda window, value: (window.key, f"{value}[{window.start},{window.end}]"))
        .to_table(store="last")
    )
    clicks.left_join(last, lambda click, session: f"{text(click)}<{text(session)}").to("views")
    b.stream("logins").left_join(last, lambda login, session: f"{text(login)}~{text(session)}").to("out")


@topology
def top_of_groups(b: StreamsBuilder, case: Case) -> None:
    def by_team(key: str, score: str) -> tuple[str, str]:
        team, points = score.split(":")
        return team, f"{key}={points}"

    (
        b.table("scores", store="scores")
        .filter(lambda key, score: ":" in score)
        .group_by(by_team, name="teams", key=Str(), value=Str())
        .aggregate(
            empty,
            lambda team, score, scores: f"{scores}{score};",
            lambda team, score, scores: scores.replace(f"{score};", "", 1),
            store="teams",
        )
        .map_values(lambda scores: ",".join(sorted(scores.rstrip(";").split(";"))))
        .join(b.table("names", store="names"), lambda scores, name: f"{scores}@{name}")
        .to_stream()
        .to("out")
    )


class Dedup(Processor):
    """Forward a record unless the same key and value came within 30 ms of it."""

    def process(self, record: Record) -> None:
        if record.key is None or record.value is None:
            return
        seen = self.context.store("seen")
        same = record.key + record.value
        if not list(seen.fetch(same, record.timestamp - 30, record.timestamp + 30)):
            self.context.forward(record)
        seen.put(same, "1", record.timestamp)


@topology
def deduplicate_then_reduce(b: StreamsBuilder, case: Case) -> None:
    b.add_store(Window("seen", size=ms(60), retention=ms(60)))
    (
        b.stream("in")
        .process(Dedup, stores=["seen"], name="dedup")
        .repartition(name="clean")
        .group_by_key()
        .windowed_by(hopping(60, 30, 20))
        .reduce(concatenate, store="red")
        .to_stream()
        .select_key(lambda window, value: window.key)
        .to_table(store="latest")
        .map_values(len)
        .to_stream()
        .to("out", value=L)
    )


@topology
def headers_through_windows(b: StreamsBuilder, case: Case) -> None:
    stream = b.stream("in")
    grouped = stream.group_by_key()
    grouped.windowed_by(tumbling(40, 10)).count(store="t").suppress(CLOSE).to_stream().to("closed")
    grouped.windowed_by(sessions(20, 10)).count(store="s").to_stream().to("sessions")
    (
        grouped.windowed_by(tumbling(40, 10))
        .emit_strategy("on-close")
        .count(store=Window("e", retention=ms(1000)))
        .to_stream()
        .to("emitted")
    )
    stream.to_table(store="tab").suppress(Suppress.until_time_limit(ms(20))).to_stream().to("limited")
