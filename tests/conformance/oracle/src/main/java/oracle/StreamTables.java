package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.STRING;
import static oracle.Harness.ms;
import static oracle.Words.*;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Suppressed;

/** Stream-table and stream-global table joins. */
final class StreamTables implements Harness.Area {
    private static final String GROUP = "Stream-table joins";

    private static Inputs usual() {
        return Inputs.of().nulls(5, 12).keys("stream", "a", "b", "c").keys("table", "a", "b");
    }

    private static Harness.Definition two(final Harness.Registry r, final String name, final String description) {
        return strings(r, name, GROUP, description, "stream", "table").random(usual());
    }

    private static Joined<String, String, String> grace(final String name, final long graceMs) {
        return Joined.<String, String, String>as(name).withGracePeriod(ms(graceMs));
    }

    @Override
    public void register(final Harness.Registry r) {
        two(r, "stream-filtered-table-join", "stream.join(table.filter(last digit even), plus).")
            .dsl((b, e) -> stream(b, "stream").join(table(b, "table").filter((k, v) -> even(v)), PLUS).to("out"));
        two(r, "stream-filtered-table-left-join", "stream.leftJoin(table (`tab`).filterNot(last digit even).mapValues(v + '!'), key: plus).")
            .dsl((b, e) -> stream(b, "stream").leftJoin(table(b, "table", "tab").filterNot((k, v) -> even(v)).mapValues(v -> v + "!"), KEY_PLUS).to("out"));
        two(r, "stream-mapped-table-join", "stream.join(table.mapValues((k, v) -> k + v, null for a last digit 0 or 5; store `m`), plus).")
            .dsl((b, e) -> stream(b, "stream").join(
                table(b, "table").mapValues((k, v) -> v.endsWith("0") || v.endsWith("5") ? null : k + v, as("m")), PLUS).to("out"));
        two(r, "stream-aggregated-table-join", "stream.join(stream(table).groupByKey.count(), plus) -> out; stream.leftJoin(stream.groupByKey.count(), plus) -> out.")
            .dsl((b, e) -> {
                KStream<String, String> stream = stream(b, "stream");
                stream.join(stream(b, "table").groupByKey().count(), PLUS).to("out");
                stream.leftJoin(stream.groupByKey().count(), PLUS).to("out");
            });
        strings(r, "stream-joined-table-join", GROUP, "stream.join(one.leftJoin(two, plus), plus) -> out: the table is an unmaterialized join.", "stream", "one", "two")
            .random(Inputs.of().nulls(4, 15).keys("one", "a", "b").keys("two", "a", "b").keys("stream", "a", "b"))
            .dsl((b, e) -> stream(b, "stream").join(table(b, "one").leftJoin(table(b, "two"), PLUS), PLUS).to("out"));
        strings(r, "stream-joined-filtered-table-left-join", GROUP, "stream.leftJoin(one.join(two, plus).filter(last digit even), plus) -> out.", "stream", "one", "two")
            .random(Inputs.of().nulls(4, 15).keys("one", "a", "b").keys("two", "a", "b").keys("stream", "a", "b"))
            .dsl((b, e) -> stream(b, "stream").leftJoin(table(b, "one").join(table(b, "two"), PLUS).filter((k, v) -> even(v)), PLUS).to("out"));
        two(r, "stream-suppressed-table-join", "stream.leftJoin(table.suppress(until 20 ms, unbounded), plus).")
            .dsl((b, e) -> stream(b, "stream").leftJoin(
                table(b, "table").suppress(Suppressed.untilTimeLimit(ms(20), Suppressed.BufferConfig.unbounded())), PLUS).to("out"));
        two(r, "stream-table-left-join-rekeyed", "stream.map((part before ':', v)).leftJoin(table, plus) -> groupByKey -> count -> out (as text).")
            .random(usual().values("stream", Inputs.references("a", "b", "c")))
            .dsl((b, e) -> stream(b, "stream").selectKey(TO_REFERENCE).leftJoin(table(b, "table"), PLUS)
                .groupByKey().count().toStream().mapValues(v -> "" + v).to("out"));
        r.add("stream-table-join-longs", GROUP, "longs: stream.selectKey(k + k).leftJoin(table (keys aa, bb), sum (null: 0); Joined serdes string, long, long, name `j`).")
            .source("stream", STRING, LONG).source("table", STRING, LONG).sink("out", STRING, LONG)
            .random(Inputs.of().keys("table", "aa", "bb").nulls(0, 10))
            .dsl((b, e) -> b.stream("stream", Consumed.with(Serdes.String(), Serdes.Long())).selectKey((k, v) -> k + k)
                .leftJoin(longs(b, "table", "tab"), (s, t) -> s + (t == null ? 0L : t),
                    Joined.with(Serdes.String(), Serdes.Long(), Serdes.Long(), "j"))
                .to("out", longValues()));
        strings(r, "stream-own-table-join", GROUP, "in.join(in.toTable(), plus) -> out; in.leftJoin(in.filter(last digit even).toTable(store `t`), plus) -> out: the order of the children decides.", "in")
            .random(Inputs.of().nulls(4, 12))
            .dsl((b, e) -> {
                KStream<String, String> in = stream(b, "in");
                in.join(in.toTable(), PLUS).to("out");
                in.leftJoin(in.filter((k, v) -> v != null && even(v)).toTable(as("t")), PLUS).to("out");
            });
        two(r, "stream-table-join-then-group", "stream.join(table, plus).groupBy(last character).aggregate(dotted; `agg`).")
            .dsl((b, e) -> stream(b, "stream").join(table(b, "table"), PLUS)
                .groupBy((k, v) -> last(v)).aggregate(() -> "", DOTTED, as("agg")).toStream().to("out"));
        grace(r);
        globals(r);
    }

    private void grace(final Harness.Registry r) {
        final Inputs noNullKeys = Inputs.of().nulls(0, 12).keys("stream", "a", "b").keys("table", "a", "b").late(40, 60);
        two(r, "stream-grace-join-equal-retention", "stream.join(table versioned (`tab`, 30 ms), plus; name `sj`, grace 30 ms).").random(noNullKeys)
            .dsl((b, e) -> stream(b, "stream").join(Words.versioned(b, "table", "tab", 30), PLUS, grace("sj", 30)).to("out"));
        two(r, "stream-grace-left-join-long-retention", "stream.leftJoin(table versioned (`tab`, 500 ms), key: plus; name `sj`, grace 50 ms).").random(noNullKeys)
            .dsl((b, e) -> stream(b, "stream").leftJoin(Words.versioned(b, "table", "tab", 500), KEY_PLUS, grace("sj", 50)).to("out"));
        two(r, "stream-grace-join-zero", "stream.join(table versioned (`tab`, 60 ms), plus; grace 0, name `z`).").random(noNullKeys)
            .dsl((b, e) -> stream(b, "stream").join(Words.versioned(b, "table", "tab", 60), PLUS, grace("z", 0)).to("out"));
        two(r, "stream-grace-join-unnamed", "stream.join(table versioned (`tab`, 60 ms), plus; grace 15 ms, no name).").random(noNullKeys)
            .dsl((b, e) -> stream(b, "stream").join(Words.versioned(b, "table", "tab", 60), PLUS,
                Joined.<String, String, String>with(null, null, null).withGracePeriod(ms(15))).to("out"));
        two(r, "stream-grace-join-rekeyed", "stream.selectKey(part before ':').join(table versioned (`tab`, 60 ms), plus; grace 15 ms, name `g`).")
            .random(Inputs.of().nulls(0, 0).values("stream", Inputs.references("a", "b")).keys("table", "a", "b").late(40, 60))
            .dsl((b, e) -> stream(b, "stream").selectKey(TO_REFERENCE).join(Words.versioned(b, "table", "tab", 60), PLUS, grace("g", 15)).to("out"));
        two(r, "stream-grace-join-duplicates", "stream.leftJoin(table versioned (`tab`, 60 ms), plus; grace 10 ms, name `g`): few timestamps, so several records of a key and time.")
            .random(Inputs.of().nulls(0, 10).keys("stream", "a", "b").keys("table", "a").step(3).late(40, 12))
            .dsl((b, e) -> stream(b, "stream").leftJoin(Words.versioned(b, "table", "tab", 60), PLUS, grace("g", 10)).to("out"));
        two(r, "stream-versioned-filtered-join", "stream.leftJoin(table versioned (`tab`, 60 ms).filter(last digit even).mapValues(v + '!'), plus): as of the stream record's time.")
            .random(usual().late(40, 70))
            .dsl((b, e) -> stream(b, "stream").leftJoin(
                Words.versioned(b, "table", "tab", 60).filter((k, v) -> even(v)).mapValues(v -> v + "!"), PLUS).to("out"));
        two(r, "stream-versioned-map-materialized-join", "stream.join(table versioned (`tab`, 60 ms).mapValues(v + '!'; store `m`, plain), plus) -> out; the same with store `mv`, versioned 60 ms -> out.")
            .random(usual().late(40, 70))
            .dsl((b, e) -> {
                KStream<String, String> stream = stream(b, "stream");
                KTable<String, String> table = Words.versioned(b, "table", "tab", 60);
                stream.join(table.mapValues(v -> v + "!", as("m")), PLUS).to("out");
                stream.join(table.mapValues(v -> v + "?", Words.<String>versioned("mv", 60)), PLUS).to("out");
            });
        strings(r, "stream-versioned-joined-join", GROUP, "stream.leftJoin(one versioned (`v1`, 60 ms).join(two versioned (`v2`, 60 ms), plus; store `j`, versioned 60 ms), plus) -> out.", "stream", "one", "two")
            .random(Inputs.of().nulls(4, 12).keys("one", "a", "b").keys("two", "a", "b").keys("stream", "a", "b").late(40, 70))
            .dsl((b, e) -> stream(b, "stream").leftJoin(
                Words.versioned(b, "one", "v1", 60).join(Words.versioned(b, "two", "v2", 60), PLUS, Words.<String>versioned("j", 60)), PLUS).to("out"));
        two(r, "stream-versioned-aggregate-join", "stream.join(stream(table).groupByKey.reduce(newer value; store `va`, versioned 60 ms), plus; grace 10 ms, name `g`).").random(noNullKeys)
            .dsl((b, e) -> stream(b, "stream").join(
                stream(b, "table").groupByKey().reduce((a, v) -> v, Words.<String>versioned("va", 60)), PLUS, grace("g", 10)).to("out"));
    }

    private void globals(final Harness.Registry r) {
        final Inputs refs = Inputs.of().nulls(6, 10).values("stream", Inputs.references("a", "b", "z")).keys("table", "a", "b");
        strings(r, "global-join-with-key", "Stream-GlobalKTable joins", "stream.join(globalTable (`g`), select part before ':', joiner with key: key + ':' + plus): which key does it get?", "stream", "table")
            .random(refs)
            .dsl((b, e) -> stream(b, "stream").join(b.<String, String>globalTable("table", as("g")), TO_REFERENCE, KEY_PLUS).to("out"));
        strings(r, "global-left-join-with-key", "Stream-GlobalKTable joins", "stream.leftJoin(globalTable (`g`), select key + '' (null: null), joiner with key: key + ':' + plus; named `gl`).", "stream", "table")
            .random(refs)
            .dsl((b, e) -> stream(b, "stream").leftJoin(b.<String, String>globalTable("table", as("g")), (k, v) -> k, KEY_PLUS, Named.as("gl")).to("out"));
        strings(r, "global-joins-in-a-row", "Stream-GlobalKTable joins", "stream.join(g1, select part before ':', plus).leftJoin(g2, select last character, plus).groupByKey.count -> as text.", "stream", "table", "two")
            .random(refs.values("table", Inputs.oneOf("1", "2", "3")).keys("two", "1", "2"))
            .dsl((b, e) -> {
                GlobalKTable<String, String> g1 = b.globalTable("table", as("g1"));
                GlobalKTable<String, String> g2 = b.globalTable("two");
                stream(b, "stream").join(g1, TO_REFERENCE, PLUS).leftJoin(g2, (k, v) -> last(v), PLUS).to("out");
            });
        strings(r, "global-join-rekeyed", "Stream-GlobalKTable joins", "stream.selectKey(part before ':').join(globalTable (`g`), select the key, plus).groupByKey.aggregate(dotted): no repartition before the join, one after.", "stream", "table")
            .random(refs)
            .dsl((b, e) -> stream(b, "stream").selectKey(TO_REFERENCE).join(b.<String, String>globalTable("table", as("g")), (k, v) -> k, PLUS)
                .groupByKey().aggregate(() -> "", DOTTED).toStream().to("out"));
    }
}
