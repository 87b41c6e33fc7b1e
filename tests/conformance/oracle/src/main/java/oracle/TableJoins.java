package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.STRING;
import static oracle.Harness.in;
import static oracle.Harness.ms;
import static oracle.Harness.timeWindowed;
import static oracle.Words.*;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** Table-table joins: chains, unmaterialized parents, old values, versioned tables. */
final class TableJoins implements Harness.Area {
    private static final String GROUP = "Table-table joins";
    private static final String[] TWO = {"left", "right"};
    private static final String[] THREE = {"one", "two", "three"};

    private static Inputs few() {
        return Inputs.of().nulls(3, 18).keys("one", "a", "b").keys("two", "a", "b").keys("three", "a", "b");
    }

    private static Harness.Definition three(final Harness.Registry r, final String name, final String description) {
        return strings(r, name, GROUP, description, THREE).random(few());
    }

    private static Harness.Definition two(final Harness.Registry r, final String name, final String description) {
        return strings(r, name, GROUP, description, TWO).random(Inputs.of().nulls(3, 15));
    }

    @Override
    public void register(final Harness.Registry r) {
        chains(r);
        parents(r);
        oldValues(r);
        versioned(r);
    }

    private void chains(final Harness.Registry r) {
        three(r, "table-join-chain-inner", "one.join(two).join(three), plus, unmaterialized, unnamed.")
            .dsl((b, e) -> table(b, "one").join(table(b, "two"), PLUS).join(table(b, "three"), PLUS).toStream().to("out"));
        three(r, "table-join-chain-left-inner", "one.leftJoin(two).join(three).")
            .dsl((b, e) -> table(b, "one").leftJoin(table(b, "two"), PLUS).join(table(b, "three"), PLUS).toStream().to("out"));
        three(r, "table-join-chain-inner-left", "one.join(two).leftJoin(three).")
            .dsl((b, e) -> table(b, "one").join(table(b, "two"), PLUS).leftJoin(table(b, "three"), PLUS).toStream().to("out"));
        three(r, "table-join-chain-outer-left", "one.outerJoin(two).leftJoin(three).")
            .dsl((b, e) -> table(b, "one").outerJoin(table(b, "two"), PLUS).leftJoin(table(b, "three"), PLUS).toStream().to("out"));
        three(r, "table-join-chain-inner-outer", "one.join(two; store `first`).outerJoin(three; store `second`).")
            .dsl((b, e) -> table(b, "one").join(table(b, "two"), PLUS, as("first"))
                .outerJoin(table(b, "three"), PLUS, as("second")).toStream().to("out"));
        three(r, "table-join-chain-right-nested", "one.leftJoin(two.outerJoin(three)): the join is the right side.")
            .dsl((b, e) -> {
                KTable<String, String> one = table(b, "one");
                one.leftJoin(table(b, "two").outerJoin(table(b, "three"), PLUS), PLUS).toStream().to("out");
            });
        three(r, "table-join-chain-materialized-end", "one.leftJoin(two).outerJoin(three; store `end`): only the last is materialized.")
            .dsl((b, e) -> table(b, "one").leftJoin(table(b, "two"), PLUS)
                .outerJoin(table(b, "three"), PLUS, as("end")).toStream().to("out"));
        three(r, "table-join-diamond", "one.join(two) and one.leftJoin(three), joined with each other (outer).")
            .dsl((b, e) -> {
                KTable<String, String> one = table(b, "one");
                one.join(table(b, "two"), PLUS).outerJoin(one.leftJoin(table(b, "three"), PLUS), PLUS).toStream().to("out");
            });
        strings(r, "table-self-join", GROUP, "in.join(in, plus) -> out; in.leftJoin(in.filter(last digit even), plus) -> out.", "in")
            .random(Inputs.of().nulls(3, 15))
            .dsl((b, e) -> {
                KTable<String, String> in = table(b, "in");
                in.join(in, PLUS).toStream().to("out");
                in.leftJoin(in.filter((k, v) -> even(v)), PLUS).toStream().to("out");
            });
    }

    private void parents(final Harness.Registry r) {
        two(r, "table-join-filtered", "left.filter(last digit even).join(right.mapValues(v + '!')), nothing materialized.")
            .dsl((b, e) -> table(b, "left").filter((k, v) -> even(v))
                .join(table(b, "right").mapValues(v -> v + "!"), PLUS).toStream().to("out"));
        two(r, "table-outer-join-filtered", "left.filterNot(last digit even).outerJoin(right.filter(last digit even)), nothing materialized.")
            .dsl((b, e) -> table(b, "left").filterNot((k, v) -> even(v))
                .outerJoin(table(b, "right").filter((k, v) -> even(v)), PLUS).toStream().to("out"));
        two(r, "table-left-join-filtered-materialized", "left.filter(last digit even; store `lf`).leftJoin(right.filter(last digit even; store `rf`); store `joined`).")
            .dsl((b, e) -> table(b, "left").filter((k, v) -> even(v), as("lf"))
                .leftJoin(table(b, "right").filter((k, v) -> even(v), as("rf")), PLUS, as("joined")).toStream().to("out"));
        two(r, "table-join-then-filter-materialized", "left.leftJoin(right, plus) -> filter(last character even digit; store `end`).")
            .dsl((b, e) -> table(b, "left").leftJoin(table(b, "right"), PLUS)
                .filter((k, v) -> Character.isDigit(v.charAt(v.length() - 1)) && even(v), as("end")).toStream().to("out"));
        two(r, "table-join-then-map-values-materialized", "left.outerJoin(right, plus) -> mapValues((k, v) -> k + v; store `end`) -> filterNot(contains 'null').")
            .dsl((b, e) -> table(b, "left").outerJoin(table(b, "right"), PLUS)
                .mapValues((k, v) -> k + v, as("end")).filterNot((k, v) -> v.contains("null")).toStream().to("out"));
        r.add("table-join-aggregated", GROUP, "stream `left`.groupByKey.count() (unnamed).leftJoin(table `right`, plus) -> out; right.outerJoin(the count) -> out.")
            .source("left", STRING, STRING).source("right", STRING, STRING).sink("out", STRING, STRING)
            .random(Inputs.of().nulls(3, 12))
            .dsl((b, e) -> {
                KTable<String, Long> counts = stream(b, "left").groupByKey().count();
                KTable<String, String> right = table(b, "right");
                counts.leftJoin(right, PLUS).toStream().to("out");
                right.outerJoin(counts, PLUS).toStream().to("out");
            });
        two(r, "table-join-two-aggregates", "stream left.groupBy(first character).aggregate(dotted).join(stream right.groupByKey.reduce(a + ',' + v), plus; store `joined`): keys x, y, z on the right.")
            .random(Inputs.of().values("left", (random, n) -> "xyz".charAt(random.nextInt(3)) + "" + n).keys("right", "x", "y", "z"))
            .dsl((b, e) -> stream(b, "left").groupBy((k, v) -> first(v)).aggregate(() -> "", DOTTED)
                .join(stream(b, "right").groupByKey().reduce(COMMA), PLUS, as("joined"))
                .toStream().to("out"));
        two(r, "table-join-suppressed", "left.suppress(until 20 ms, unbounded).leftJoin(right, plus): the suppressed table is a side of the join.")
            .dsl((b, e) -> table(b, "left")
                .suppress(Suppressed.untilTimeLimit(ms(20), Suppressed.BufferConfig.unbounded()))
                .leftJoin(table(b, "right"), PLUS).toStream().to("out"));
        two(r, "table-outer-join-suppressed", "left.outerJoin(right.suppress(until 20 ms, at most 2 records, emit early; named `sup`), plus; store `joined`).")
            .dsl((b, e) -> table(b, "left").outerJoin(
                table(b, "right").suppress(Suppressed.<String>untilTimeLimit(ms(20), Suppressed.BufferConfig.maxRecords(2)).withName("sup")),
                PLUS, as("joined")).toStream().to("out"));
        two(r, "table-join-then-suppress", "left.join(right, plus) -> suppress(until 25 ms, unbounded) -> toStream.")
            .dsl((b, e) -> table(b, "left").join(table(b, "right"), PLUS)
                .suppress(Suppressed.untilTimeLimit(ms(25), Suppressed.BufferConfig.unbounded())).toStream().to("out"));
        r.add("table-join-longs", GROUP, "longs: left (`ltab`).join(right (`rtab`), sum; store `sum`, long) -> filter(< 25) -> toStream; left.leftJoin(right, left - right (0 for null); value long, not materialized) -> toStream -> diff.")
            .source("left", STRING, LONG).source("right", STRING, LONG).sink("out", STRING, LONG).sink("diff", STRING, LONG)
            .dsl((b, e) -> {
                KTable<String, Long> left = longs(b, "left", "ltab");
                KTable<String, Long> right = longs(b, "right", "rtab");
                left.join(right, Long::sum, Words.<Long>as("sum").withValueSerde(Serdes.Long()))
                    .filter((k, v) -> v < 25).toStream().to("out", longValues());
                left.leftJoin(right, (l, v) -> l - (v == null ? 0 : v)).toStream().to("diff", longValues());
            });
        r.add("table-join-windowed", GROUP, "left and right, each groupByKey, tumbling 20 ms, grace 10 ms, count (stores `lc`, `rc`): lc.outerJoin(rc, plus) -> toStream -> out (windowed).")
            .source("left", STRING, STRING).source("right", STRING, STRING).sink("out", timeWindowed(20), STRING)
            .random(Inputs.of().late(25, 30))
            .dsl((b, e) -> {
                TimeWindows windows = TimeWindows.ofSizeAndGrace(ms(20), ms(10));
                KTable<Windowed<String>, Long> lc = stream(b, "left").groupByKey().windowedBy(windows).count(
                    Materialized.as("lc"));
                KTable<Windowed<String>, Long> rc = stream(b, "right").groupByKey().windowedBy(windows).count(
                    Materialized.as("rc"));
                lc.outerJoin(rc, PLUS).toStream()
                    .to("out", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 20), Serdes.String()));
            });
        two(r, "table-join-to-stream-joins", "joined = left.leftJoin(right, plus); joined.toStream().join(right, plus) -> out; joined.toStream(key + '*') -> out.")
            .dsl((b, e) -> {
                KTable<String, String> right = table(b, "right");
                KTable<String, String> joined = table(b, "left").leftJoin(right, PLUS);
                joined.toStream().join(right, PLUS).to("out");
                joined.toStream((k, v) -> k + "*").to("out");
            });
    }

    private void oldValues(final Harness.Registry r) {
        two(r, "table-inner-join-group-by", "left.join(right, plus) -> groupBy((last character, k + '/' + v); named `grp`) -> aggregate(add, subtract; store `agg`).")
            .dsl((b, e) -> table(b, "left").join(table(b, "right"), PLUS)
                .groupBy((k, v) -> KeyValue.pair(last(v), k + "/" + v), Grouped.as("grp"))
                .aggregate(() -> "", ADD, SUBTRACT, as("agg")).toStream().to("out"));
        two(r, "table-outer-join-map-group-by", "left.outerJoin(right, plus) -> mapValues(v + '!') -> filter(third character even digit) -> groupBy((k.length, v), unnamed) -> aggregate(add, subtract).")
            .dsl((b, e) -> table(b, "left").outerJoin(table(b, "right"), PLUS).mapValues(v -> v + "!")
                .filter((k, v) -> v.charAt(1) % 2 == 0)
                .groupBy((k, v) -> KeyValue.pair(String.valueOf(k.length()), v))
                .aggregate(() -> "", ADD, SUBTRACT).toStream().to("out"));
        three(r, "table-join-chain-group-by", "one.join(two).leftJoin(three) -> groupBy(('all', k + v)) -> aggregate(add, subtract; store `agg`).")
            .random(few())
            .dsl((b, e) -> table(b, "one").join(table(b, "two"), PLUS).leftJoin(table(b, "three"), PLUS)
                .groupBy((k, v) -> KeyValue.pair(k, v)).aggregate(() -> "", ADD, SUBTRACT, as("agg")).toStream().to("out"));
        r.add("table-join-group-by-count", GROUP, "left.leftJoin(right, right or '-') -> groupBy((v, k)) -> count(`c`); -> filter(> 0) -> toStream.")
            .source("left", STRING, STRING).source("right", STRING, STRING).sink("out", STRING, LONG)
            .random(Inputs.of().nulls(3, 15).values("right", Inputs.oneOf("x", "y", "z")))
            .dsl((b, e) -> table(b, "left").leftJoin(table(b, "right"), (l, v) -> v == null ? "-" : v)
                .groupBy((k, v) -> KeyValue.pair(v, k)).count(as("c")).filter((k, v) -> v > 0).toStream().to("out"));
        two(r, "table-filtered-join-group-by", "left.filter(last digit even).leftJoin(right.filter(last digit even), plus) -> groupBy((last character, v)) -> reduce(a + ',' + v, a + '-' + v; `red`).")
            .dsl((b, e) -> table(b, "left").filter((k, v) -> even(v)).leftJoin(table(b, "right").filter((k, v) -> even(v)), PLUS)
                .groupBy((k, v) -> KeyValue.pair(last(v), v))
                .reduce(COMMA, MINUS, as("red")).toStream().to("out"));
        two(r, "table-suppressed-group-by", "left.suppress(until 15 ms, unbounded) -> join(right, plus) -> groupBy(('all', k + v)) -> aggregate(add, subtract).")
            .random(Inputs.of().nulls(3, 15))
            .dsl((b, e) -> table(b, "left").suppress(Suppressed.untilTimeLimit(ms(15), Suppressed.BufferConfig.unbounded()))
                .join(table(b, "right"), PLUS).groupBy((k, v) -> KeyValue.pair(k, v))
                .aggregate(() -> "", ADD, SUBTRACT).toStream().to("out"));
        r.add("table-sums-of-sums", GROUP, "longs: table -> groupBy((k + v % 2, v)) -> reduce(+, -; `one`) -> groupBy((first character, v)) -> aggregate(0, +, -; `two`) -> join(table, plus) -> out; two -> sums.")
            .source("in", STRING, LONG).sink("sums", STRING, LONG).sink("out", STRING, STRING)
            .random(Inputs.of().late(35, 60))
            .dsl((b, e) -> {
                KTable<String, Long> in = longs(b, "in", "tab");
                KTable<String, Long> two = in
                    .groupBy((k, v) -> KeyValue.pair(k + v % 2, v), Grouped.with(Serdes.String(), Serdes.Long()))
                    .reduce(Long::sum, (a, v) -> a - v, as("one"))
                    .groupBy((k, v) -> KeyValue.pair(first(k), v), Grouped.with(Serdes.String(), Serdes.Long()))
                    .aggregate(() -> 0L, (k, v, a) -> a + v, (k, v, a) -> a - v,
                        Words.<Long>as("two").withValueSerde(Serdes.Long()));
                two.join(in, PLUS).toStream().to("out");
                two.toStream().to("sums", longValues());
            });
    }

    private void versioned(final Harness.Registry r) {
        final Inputs late = Inputs.of().late(45, 70).nulls(3, 15).keys("left", "a", "b").keys("right", "a", "b");
        two(r, "versioned-left-join-plain", "left versioned (`lv`, 60 ms).join(right (`rtab`), plus).").random(late)
            .dsl((b, e) -> Words.versioned(b, "left", "lv", 60).join(table(b, "right", "rtab"), PLUS).toStream().to("out"));
        two(r, "versioned-right-left-join", "left (`ltab`).leftJoin(right versioned (`rv`, 60 ms), plus).").random(late)
            .dsl((b, e) -> table(b, "left", "ltab").leftJoin(Words.versioned(b, "right", "rv", 60), PLUS).toStream().to("out"));
        two(r, "versioned-both-outer-join", "left versioned (`lv`, 60 ms).outerJoin(right versioned (`rv`, 30 ms), plus).").random(late)
            .dsl((b, e) -> Words.versioned(b, "left", "lv", 60).outerJoin(Words.versioned(b, "right", "rv", 30), PLUS).toStream().to("out"));
        two(r, "versioned-both-join-materialized", "left versioned (`lv`, 60 ms).join(right versioned (`rv`, 60 ms), plus; store `joined`, plain).").random(late)
            .dsl((b, e) -> Words.versioned(b, "left", "lv", 60).join(Words.versioned(b, "right", "rv", 60), PLUS, as("joined")).toStream().to("out"));
        two(r, "versioned-join-result", "left versioned (`lv`, 60 ms).leftJoin(right versioned (`rv`, 60 ms), plus; store `joined`, versioned 60 ms).").random(late)
            .dsl((b, e) -> Words.versioned(b, "left", "lv", 60)
                .leftJoin(Words.versioned(b, "right", "rv", 60), PLUS, Words.<String>versioned("joined", 60)).toStream().to("out"));
        two(r, "versioned-plain-join-result", "left (`ltab`).outerJoin(right (`rtab`), plus; store `joined`, versioned 60 ms) -> mapValues(v + '!').").random(late)
            .dsl((b, e) -> table(b, "left", "ltab")
                .outerJoin(table(b, "right", "rtab"), PLUS, Words.<String>versioned("joined", 60)).mapValues(v -> v + "!").toStream().to("out"));
        two(r, "versioned-join-group-by", "left versioned (`lv`, 60 ms).leftJoin(right versioned (`rv`, 60 ms), plus) -> groupBy((last character, k + '/' + v)) -> aggregate(add, subtract; `agg`).").random(late)
            .dsl((b, e) -> Words.versioned(b, "left", "lv", 60).leftJoin(Words.versioned(b, "right", "rv", 60), PLUS)
                .groupBy((k, v) -> KeyValue.pair(last(v), k + "/" + v)).aggregate(() -> "", ADD, SUBTRACT, as("agg")).toStream().to("out"));
        two(r, "versioned-filtered-join", "left versioned (`lv`, 60 ms).filter(last digit even).leftJoin(right versioned (`rv`, 60 ms).mapValues(v + '!'), plus).").random(late)
            .dsl((b, e) -> Words.versioned(b, "left", "lv", 60).filter((k, v) -> even(v))
                .leftJoin(Words.versioned(b, "right", "rv", 60).mapValues(v -> v + "!"), PLUS).toStream().to("out"));
        strings(r, "versioned-filter-materialized", GROUP, "in versioned (`tab`, 60 ms).filter(last digit even; store `f`, versioned 60 ms) -> toStream; in.filterNot(last digit even; store `p`, plain) -> toStream.", "in")
            .random(Inputs.of().late(45, 80).nulls(3, 15))
            .dsl((b, e) -> {
                KTable<String, String> in = Words.versioned(b, "in", "tab", 60);
                in.filter((k, v) -> even(v), Words.<String>versioned("f", 60)).toStream().to("out");
                in.filterNot((k, v) -> even(v), as("p")).toStream().to("out");
            });
        strings(r, "versioned-map-values-materialized", GROUP, "in versioned (`tab`, 60 ms).mapValues(v + '!'; store `m`, versioned 30 ms) -> toStream; in.mapValues((k, v) -> k + v; store `p`, plain) -> groupBy((k, v)) -> aggregate(add, subtract).", "in")
            .random(Inputs.of().late(45, 80).nulls(3, 15))
            .dsl((b, e) -> {
                KTable<String, String> in = Words.versioned(b, "in", "tab", 60);
                in.mapValues(v -> v + "!", Words.<String>versioned("m", 30)).toStream().to("out");
                in.mapValues((k, v) -> k + v, as("p")).groupBy((k, v) -> KeyValue.pair(k, v))
                    .aggregate(() -> "", ADD, SUBTRACT, as("agg")).toStream().to("out");
            });
        strings(r, "versioned-to-table-and-aggregate", GROUP, "in.toTable(store `tt`, versioned 60 ms) -> toStream -> out; in.groupByKey.aggregate(dotted; store `va`, versioned 60 ms) -> toStream -> out; -> filter(last digit even) -> groupBy((k, v)) -> aggregate(add, subtract) -> out.", "in")
            .random(Inputs.of().late(45, 80).nulls(3, 12))
            .dsl((b, e) -> {
                stream(b, "in").toTable(Words.<String>versioned("tt", 60)).toStream().to("out");
                KTable<String, String> va = stream(b, "in").groupByKey().reduce((a, v) -> v, Words.<String>versioned("va", 60));
                va.toStream().to("out");
                va.filter((k, v) -> even(v)).groupBy((k, v) -> KeyValue.pair(k, v)).aggregate(() -> "", ADD, SUBTRACT).toStream().to("out");
            });
        strings(r, "versioned-aggregates-expired", GROUP, "in.groupByKey.aggregate(dotted; store `va`, versioned 60 ms) -> toStream -> out; table in2.groupBy((first character, v)).aggregate(add, subtract; store `vt`, versioned 60 ms) -> toStream -> out: a row older than the history retention is not stored, not emitted, and counted as dropped.", "in", "in2")
            .random(Inputs.of().late(45, 80).nulls(3, 12).jumps(12, 150))
            .scenario(in("in", "a", "I1", 10), in("in", "b", "I2", 200), in("in", "c", "I3", 139), in("in", "c", "I4", 140),
                in("in", "a", "I5", 100), in("in", "a", "I6", 150), in("in2", "a", "x1", 10), in("in2", "b", "y2", 200),
                in("in2", "c", "z3", 139), in("in2", "c", "z4", 140), in("in2", "a", "z5", 20), in("in2", "a", null, 30))
            .dsl((b, e) -> {
                stream(b, "in").groupByKey().aggregate(() -> "", DOTTED, Words.<String>versioned("va", 60)).toStream().to("out");
                table(b, "in2").groupBy((k, v) -> KeyValue.pair(first(v), v))
                    .aggregate(() -> "", ADD, SUBTRACT, Words.<String>versioned("vt", 60)).toStream().to("out");
            });
        strings(r, "versioned-serde-only", GROUP, "m = left versioned (`lv`, 60 ms).mapValues(v + '!', Materialized.with(null, string)): no store, but no longer versioned for the next step; m.filter(second character even; store `f`) -> out; m.join(right versioned (`rv`, 60 ms).filter(last digit even; Materialized.with(null, string)), plus) -> out; m.groupBy((k, v)).aggregate(add, subtract) -> out.", TWO)
            .random(late)
            .dsl((b, e) -> {
                KTable<String, String> m = Words.versioned(b, "left", "lv", 60)
                    .mapValues(v -> v + "!", Materialized.with(null, Serdes.String()));
                m.filter((k, v) -> v.charAt(1) % 2 == 0, as("f")).toStream().to("out");
                m.join(Words.versioned(b, "right", "rv", 60).filter((k, v) -> even(v), Materialized.with(null, Serdes.String())), PLUS)
                    .toStream().to("out");
                m.groupBy((k, v) -> KeyValue.pair(k, v)).aggregate(() -> "", ADD, SUBTRACT).toStream().to("out");
            });
        three(r, "versioned-join-chain", "one versioned (`v1`, 60 ms).join(two versioned (`v2`, 60 ms)).leftJoin(three versioned (`v3`, 60 ms)), unmaterialized.")
            .random(few().late(45, 70))
            .dsl((b, e) -> Words.versioned(b, "one", "v1", 60).join(Words.versioned(b, "two", "v2", 60), PLUS)
                .leftJoin(Words.versioned(b, "three", "v3", 60), PLUS).toStream().to("out"));
    }
}
