package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.STRING;
import static oracle.Harness.ms;
import static oracle.Words.*;

import java.util.Map;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TableJoined;

/** Steps with and without names: what they, their stores and their topics are called. */
final class Naming implements Harness.Area {
    private static final String GROUP = "Naming";

    @Override
    public void register(final Harness.Registry r) {
        streamJoins(r);
        foreignKeys(r);
        groupings(r);
        tables(r);
        stateless(r);
    }

    private void streamJoins(final Harness.Registry r) {
        strings(r, "unnamed-stream-join", "Stream-stream joins",
                "left.join(right, plus, 10 ms, grace 15 ms), nothing named.", "left", "right")
            .dsl((b, e) -> stream(b, "left").join(stream(b, "right"), PLUS, WINDOWS).to("out"));
        strings(r, "unnamed-stream-left-join", "Stream-stream joins",
                "left.leftJoin(right, plus, 10 ms, grace 15 ms), nothing named; emit interval 0.", "left", "right")
            .config(EMIT_INTERVAL, 0)
            .dsl((b, e) -> stream(b, "left").leftJoin(stream(b, "right"), PLUS, WINDOWS).to("out"));
        strings(r, "unnamed-stream-outer-join", "Stream-stream joins",
                "left.outerJoin(right, plus, 10 ms, grace 15 ms), nothing named; emit interval 0.", "left", "right")
            .config(EMIT_INTERVAL, 0)
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS, WINDOWS).to("out"));
        strings(r, "stream-outer-join-name-only", "Stream-stream joins",
                "left.outerJoin(right, plus, 10 ms, grace 15 ms), named `oj`, no store name.", "left", "right")
            .config(EMIT_INTERVAL, 0)
            .dsl((b, e) -> stream(b, "left")
                .outerJoin(stream(b, "right"), PLUS, WINDOWS, StreamJoined.<String, String, String>as(null).withName("oj"))
                .to("out"));
        strings(r, "stream-left-join-store-only", "Stream-stream joins",
                "left.leftJoin(right, plus, 10 ms, grace 15 ms), store name `st`, no name.", "left", "right")
            .config(EMIT_INTERVAL, 0)
            .dsl((b, e) -> stream(b, "left")
                .leftJoin(stream(b, "right"), PLUS, WINDOWS, StreamJoined.<String, String, String>as("st"))
                .to("out"));
        strings(r, "stream-inner-join-store-only", "Stream-stream joins",
                "left.join(right, plus, 10 ms, grace 15 ms), store name `st`, no name.", "left", "right")
            .dsl((b, e) -> stream(b, "left")
                .join(stream(b, "right"), PLUS, WINDOWS, StreamJoined.<String, String, String>as("st"))
                .to("out"));
        strings(r, "unnamed-stream-join-repartitioned", "Stream-stream joins",
                "Both streams selectKey(part before ':'), left join 10 ms, grace 15 ms, nothing named.", "left", "right")
            .config(EMIT_INTERVAL, 0)
            .random(Inputs.of().values("left", Inputs.references("x", "y")).values("right", Inputs.references("x", "y")))
            .dsl((b, e) -> stream(b, "left").selectKey(TO_REFERENCE)
                .leftJoin(stream(b, "right").selectKey(TO_REFERENCE), PLUS, WINDOWS).to("out"));
        strings(r, "named-stream-join-one-side-repartitioned", "Stream-stream joins",
                "left.selectKey(part before ':').outerJoin(right, 10 ms, grace 15 ms; name and store `oj`).", "left", "right")
            .config(EMIT_INTERVAL, 0)
            .random(Inputs.of().values("left", Inputs.references("a", "b")).keys("right", "a", "b"))
            .dsl((b, e) -> stream(b, "left").selectKey(TO_REFERENCE)
                .outerJoin(stream(b, "right"), PLUS, WINDOWS,
                    StreamJoined.<String, String, String>as("oj").withName("oj"))
                .to("out"));
        strings(r, "unnamed-stream-join-chain", "Stream-stream joins",
                "(one.join(two)).leftJoin(three), 10 ms, grace 15 ms, nothing named.", "one", "two", "three")
            .config(EMIT_INTERVAL, 0).random(Inputs.of().keys("one", "a", "b").keys("two", "a", "b").keys("three", "a", "b"))
            .dsl((b, e) -> stream(b, "one").join(stream(b, "two"), PLUS, WINDOWS)
                .leftJoin(stream(b, "three"), PLUS, WINDOWS).to("out"));
        strings(r, "stream-table-join-named-repartitioned", GROUP,
                "stream.selectKey(part before ':').join(table, plus; Joined name `sj`).", "stream", "table")
            .random(Inputs.of().values("stream", Inputs.references("a", "b")).keys("table", "a", "b"))
            .dsl((b, e) -> stream(b, "stream").selectKey(TO_REFERENCE)
                .join(table(b, "table"), PLUS, Joined.<String, String, String>as("sj")).to("out"));
        strings(r, "stream-table-joins-in-a-row", GROUP,
                "stream.selectKey(part before ':').mapValues(v + '!').leftJoin(one, plus).join(two, plus), nothing named.",
                "stream", "one", "two")
            .random(Inputs.of().values("stream", Inputs.references("a", "b")).keys("one", "a", "b").keys("two", "a", "b").weight("stream", 2))
            .dsl((b, e) -> stream(b, "stream").selectKey(TO_REFERENCE).mapValues(v -> v + "!")
                .leftJoin(table(b, "one"), PLUS).join(table(b, "two"), PLUS).to("out"));
        strings(r, "stream-two-joins-of-one-rekeyed", GROUP,
                "keyed = stream.selectKey(part before ':'); keyed.join(one) -> out; keyed.join(two) -> out; nothing named, not optimised.",
                "stream", "one", "two")
            .random(Inputs.of().values("stream", Inputs.references("a", "b")).keys("one", "a", "b").keys("two", "a", "b"))
            .dsl((b, e) -> {
                KStream<String, String> keyed = stream(b, "stream").selectKey(TO_REFERENCE);
                keyed.join(table(b, "one"), PLUS).to("out");
                keyed.join(table(b, "two"), PLUS).to("out");
            });
        strings(r, "unnamed-global-table", GROUP,
                "stream.leftJoin(globalTable without store name, select part before ':', plus).", "stream", "table")
            .random(Inputs.of().values("stream", Inputs.references("a", "b")).keys("table", "a", "b"))
            .dsl((b, e) -> stream(b, "stream")
                .leftJoin(b.<String, String>globalTable("table"), TO_REFERENCE, PLUS).to("out"));
        strings(r, "named-global-table-join", GROUP,
                "stream.join(globalTable without store name, select part before ':', joiner plus; named `gj`).", "stream", "table")
            .random(Inputs.of().values("stream", Inputs.references("a", "b")).keys("table", "a", "b"))
            .dsl((b, e) -> stream(b, "stream")
                .join(b.<String, String>globalTable("table"), TO_REFERENCE, PLUS, Named.as("gj")).to("out"));
    }

    private void foreignKeys(final Harness.Registry r) {
        strings(r, "unnamed-foreign-key-join", GROUP,
                "Unnamed tables: left.join(right, fk = part before ':', null for n…, plus) -> toStream.", "left", "right")
            .random(fk())
            .dsl((b, e) -> table(b, "left").join(table(b, "right"), Words::foreignKey, PLUS).toStream().to("out"));
        strings(r, "unnamed-foreign-key-left-join", GROUP,
                "Unnamed tables: left.leftJoin(right, fk, plus; Materialized store `joined`) -> toStream.", "left", "right")
            .random(fk())
            .dsl((b, e) -> table(b, "left")
                .leftJoin(table(b, "right"), Words::foreignKey, PLUS, Words.<String>as("joined")).toStream().to("out"));
        strings(r, "two-foreign-key-joins", GROUP,
                "left.join(right, fk, plus) unnamed; left.leftJoin(right, fk, plus; TableJoined `second`); both -> out.",
                "left", "right")
            .random(fk())
            .dsl((b, e) -> {
                KTable<String, String> left = table(b, "left");
                KTable<String, String> right = table(b, "right", "rtab");
                left.join(right, Words::foreignKey, PLUS).toStream().to("out");
                left.leftJoin(right, Words::foreignKey, PLUS, TableJoined.<String, String>as("second")).toStream().to("out");
            });
    }

    static Inputs fk() {
        return Inputs.of().values("left", Inputs.references("x", "y", "z", "n")).keys("right", "x", "y", "z").late(35, 60);
    }

    private void groupings(final Harness.Registry r) {
        r.add("unnamed-group-by-count", GROUP, "in.groupBy(first character) -> count -> toStream; nothing named.")
            .source("in", STRING, STRING).sink("out", STRING, LONG).random(letters())
            .dsl((b, e) -> stream(b, "in").groupBy((k, v) -> first(v)).count().toStream().to("out"));
        r.add("unnamed-group-two-aggregations", GROUP,
                "g = in.groupBy(first character), unnamed; g.count -> counts; g.aggregate(dotted) -> out: two repartition topics.")
            .source("in", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING).random(letters())
            .dsl((b, e) -> {
                KGroupedStream<String, String> g = stream(b, "in").groupBy((k, v) -> first(v));
                g.count().toStream().to("counts");
                g.aggregate(() -> "", DOTTED).toStream().to("out");
            });
        r.add("named-group-two-aggregations", GROUP,
                "g = in.groupBy(first character; named `grp`); g.count -> counts; g.reduce(a + ',' + v; store `red`) -> out: one repartition topic.")
            .source("in", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING).random(letters())
            .dsl((b, e) -> {
                KGroupedStream<String, String> g =
                    stream(b, "in").groupBy((k, v) -> first(v), Grouped.as("grp"));
                g.count().toStream().to("counts");
                g.reduce(COMMA, as("red")).toStream().to("out");
            });
        r.add("group-by-key-after-map", GROUP,
                "in.map((first character, v)).groupByKey() -> count(named `cnt`, no store name) -> counts; the same map'd stream.groupByKey(named `g`).aggregate(dotted; named `agg`, store `dots`) -> out.")
            .source("in", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING).random(letters())
            .dsl((b, e) -> {
                KStream<String, String> mapped = stream(b, "in").map((k, v) -> KeyValue.pair(first(v), v));
                mapped.groupByKey().count(Named.as("cnt")).toStream().to("counts");
                mapped.groupByKey(Grouped.as("g")).aggregate(() -> "", DOTTED, Named.as("agg"), as("dots")).toStream().to("out");
            });
        r.add("aggregations-step-names", GROUP,
                "g = in.groupByKey; count(named `c`, store `cs`), reduce(a + ',' + v; named `r`), aggregate(dotted; unnamed) -> to counts, reduced, out.")
            .source("in", STRING, STRING).sink("counts", STRING, LONG).sink("reduced", STRING, STRING).sink("out", STRING, STRING)
            .dsl((b, e) -> {
                KGroupedStream<String, String> g = stream(b, "in").groupByKey();
                g.count(Named.as("c"), as("cs")).toStream(Named.as("ts")).to("counts");
                g.reduce(COMMA, Named.as("r"), Materialized.with(Serdes.String(), Serdes.String())).toStream().to("reduced");
                g.aggregate(() -> "", DOTTED).toStream().to("out", Produced.as("sink"));
            });
        r.add("table-group-by-unnamed", GROUP,
                "Unnamed table.groupBy((first character, v)) -> count; nothing named.")
            .source("in", STRING, STRING).sink("out", STRING, LONG).random(letters())
            .dsl((b, e) -> table(b, "in").groupBy((k, v) -> KeyValue.pair(first(v), v)).count().toStream().to("out"));
        r.add("table-group-by-two-aggregations", GROUP,
                "g = table.groupBy((first character, v)), unnamed; g.count -> counts; g.aggregate(add, subtract; store `agg`) -> out.")
            .source("in", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING).random(letters())
            .dsl((b, e) -> {
                KGroupedTable<String, String> g = table(b, "in").groupBy((k, v) -> KeyValue.pair(first(v), v));
                g.count().toStream().to("counts");
                g.aggregate(() -> "", ADD, SUBTRACT, as("agg")).toStream().to("out");
            });
        r.add("table-group-by-named-two-aggregations", GROUP,
                "g = table.groupBy((first character, v); named `tg`); g.count(named `c`) -> counts; g.reduce(add, subtract; store `red`) -> out.")
            .source("in", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING).random(letters())
            .dsl((b, e) -> {
                KGroupedTable<String, String> g =
                    table(b, "in").groupBy((k, v) -> KeyValue.pair(first(v), v), Grouped.as("tg"));
                g.count(Named.as("c")).toStream().to("counts");
                g.reduce(COMMA, MINUS, as("red")).toStream().to("out");
            });
    }

    static Inputs letters() {
        return Inputs.of().values("in", (random, n) -> "xyz".charAt(random.nextInt(3)) + "" + n);
    }

    private void tables(final Harness.Registry r) {
        strings(r, "table-joins-named", GROUP,
                "left.join(right, plus; named `tj`) -> toStream -> out; left.outerJoin(right, plus; named `tk`, store `joined`) -> toStream(named `s`) -> out.",
                "left", "right")
            .dsl((b, e) -> {
                KTable<String, String> left = table(b, "left");
                KTable<String, String> right = table(b, "right", "rtab");
                left.join(right, PLUS, Named.as("tj")).toStream().to("out");
                left.outerJoin(right, PLUS, Named.as("tk"), as("joined")).toStream(Named.as("s")).to("out");
            });
        strings(r, "table-joins-unnamed", GROUP,
                "Unnamed tables: left.join(right), left.leftJoin(right), left.outerJoin(right) each -> toStream -> out.",
                "left", "right")
            .dsl((b, e) -> {
                KTable<String, String> left = table(b, "left");
                KTable<String, String> right = table(b, "right");
                left.join(right, PLUS).toStream().to("out");
                left.leftJoin(right, PLUS).toStream().to("out");
                left.outerJoin(right, PLUS).toStream().to("out");
            });
        r.add("table-steps-named", GROUP,
                "longs: table(named `src`) -> filter(>= 5; named `f`) -> mapValues(* 2; named `m`, store `doubled`) -> filterNot(% 4 == 0; named `fn`) -> toStream(named `ts`).")
            .source("in", STRING, LONG).sink("out", STRING, LONG)
            .dsl((b, e) -> b.table("in", Consumed.with(Serdes.String(), Serdes.Long()).withName("src"))
                .filter((k, v) -> v >= 5, Named.as("f"))
                .mapValues(v -> v * 2, Named.as("m"), Words.<Long>as("doubled").withValueSerde(Serdes.Long()))
                .filterNot((k, v) -> v % 4 == 0, Named.as("fn"))
                .toStream(Named.as("ts"))
                .to("out", longValues()));
        r.add("table-steps-unnamed", GROUP,
                "longs: table -> filterNot(>= 15) -> mapValues((k, v) -> k + v) -> filter(last digit even) -> toStream(new key = last character or '-').")
            .source("in", STRING, LONG).sink("out", STRING, STRING)
            .dsl((b, e) -> b.table("in", Consumed.with(Serdes.String(), Serdes.Long()))
                .filterNot((k, v) -> v >= 15)
                .mapValues((k, v) -> k + v)
                .filter((k, v) -> even(v))
                .toStream((k, v) -> v == null ? "-" : last(v))
                .to("out"));
        strings(r, "to-table-repartitioned", GROUP,
                "in.selectKey(first character).toTable() -> toStream -> out; in.selectKey(first character).toTable(named `tt`, store `tab`) -> filter(last digit even) -> toStream -> out.",
                "in")
            .random(letters())
            .dsl((b, e) -> {
                KStream<String, String> in = stream(b, "in");
                in.selectKey((k, v) -> first(v)).toTable().toStream().to("out");
                in.selectKey((k, v) -> first(v)).toTable(Named.as("tt"), as("tab")).filter((k, v) -> even(v)).toStream().to("out");
            });
        strings(r, "to-table-unnamed", GROUP,
                "in.toTable() -> mapValues(v + '!') -> toStream -> out; in.toTable().join(table `other`, plus) -> toStream -> out.",
                "in", "other")
            .dsl((b, e) -> {
                KStream<String, String> in = stream(b, "in");
                in.toTable().mapValues(v -> v + "!").toStream().to("out");
                in.toTable().join(table(b, "other"), PLUS).toStream().to("out");
            });
        strings(r, "suppress-named-and-not", GROUP,
                "table -> suppress(until 30 ms, unbounded; named `sup`) -> toStream -> out; table -> suppress(until 10 ms) -> toStream -> out.",
                "in")
            .dsl((b, e) -> {
                KTable<String, String> in = table(b, "in");
                in.suppress(Suppressed.<String>untilTimeLimit(ms(30), Suppressed.BufferConfig.unbounded()).withName("sup"))
                    .toStream().to("out");
                in.suppress(Suppressed.untilTimeLimit(ms(10), Suppressed.BufferConfig.unbounded())).toStream().to("out");
            });
        strings(r, "two-streams-of-one-topic", GROUP,
                "stream(in) twice, unnamed: first -> toTable -> toStream -> out; second.mapValues('s' + v) -> out.",
                "in")
            .dsl((b, e) -> {
                stream(b, "in").toTable().toStream().to("out");
                stream(b, "in").mapValues(v -> "s" + v).to("out");
            });
    }

    private void stateless(final Harness.Registry r) {
        strings(r, "merge-and-branch-unnamed", GROUP,
                "branches = left.merge(right).split() by first letter L with last digit even, R, default; branch 1 merged with the default -> mapValues(v + '!') -> out; branch 2 -> out.",
                "left", "right")
            .dsl((b, e) -> {
                Map<String, KStream<String, String>> branches = stream(b, "left").merge(stream(b, "right")).split()
                    .branch((k, v) -> v != null && v.startsWith("L") && even(v))
                    .branch((k, v) -> v != null && v.startsWith("R"))
                    .defaultBranch();
                String stem = branches.keySet().stream().sorted().findFirst().orElseThrow();
                stem = stem.substring(0, stem.length() - 1);
                branches.get(stem + "1").merge(branches.get(stem + "0")).mapValues(v -> v + "!").to("out");
                branches.get(stem + "2").to("out");
            });
        strings(r, "merge-and-branch-named", GROUP,
                "left.merge(right; named `mg`).split(named `sp-`): branch `even` (last digit even), unnamed branch (starts with R), default named `rest`; even merged with rest (unnamed merge) -> out; the unnamed one -> out.",
                "left", "right")
            .random(Inputs.of().nulls(3, 0))
            .dsl((b, e) -> {
                Map<String, KStream<String, String>> branches = stream(b, "left").merge(stream(b, "right"), Named.as("mg"))
                    .split(Named.as("sp-"))
                    .branch((k, v) -> even(v), Branched.as("even"))
                    .branch((k, v) -> v.startsWith("R"))
                    .defaultBranch(Branched.as("rest"));
                branches.get("sp-even").merge(branches.get("sp-rest")).to("out");
                branches.get("sp-2").to("out");
            });
        strings(r, "repartition-unnamed", GROUP,
                "in.selectKey(first character).repartition() -> groupByKey -> aggregate(dotted) -> toStream -> out: one repartition topic.",
                "in")
            .random(letters())
            .dsl((b, e) -> stream(b, "in").selectKey((k, v) -> first(v)).repartition()
                .groupByKey().aggregate(() -> "", DOTTED).toStream().to("out"));
        strings(r, "repartition-twice", GROUP,
                "in.repartition(named `one`).selectKey(first character).mapValues(v + '!').repartition() -> out; the first is joined with table `table` too -> out.",
                "in", "table")
            .random(letters())
            .dsl((b, e) -> {
                KStream<String, String> one = stream(b, "in").repartition(Repartitioned.as("one"));
                one.selectKey((k, v) -> first(v)).mapValues(v -> v + "!").repartition().to("out");
                one.leftJoin(table(b, "table"), PLUS).to("out");
            });
        strings(r, "stateless-named", GROUP,
                "in -> filter `a` -> filterNot `b` -> map `c` -> mapValues `d` -> flatMap `e` -> flatMapValues `f` -> selectKey `g` -> peek `h` -> sink `i`.",
                "in")
            .random(letters().nulls(3, 0))
            .dsl((b, e) -> b.<String, String>stream("in", Consumed.as("src"))
                .filter((k, v) -> !v.endsWith("0"), Named.as("a"))
                .filterNot((k, v) -> v.endsWith("1"), Named.as("b"))
                .map((k, v) -> KeyValue.pair(v, k), Named.as("c"))
                .mapValues((k, v) -> k + v, Named.as("d"))
                .flatMap((k, v) -> java.util.List.of(KeyValue.pair(k, v), KeyValue.pair(v, k)), Named.as("e"))
                .flatMapValues(v -> java.util.List.of(v, v + "!"), Named.as("f"))
                .selectKey((k, v) -> last(k), Named.as("g"))
                .peek((k, v) -> e.add(k + v), Named.as("h"))
                .to("out", Produced.as("i")));
    }
}
