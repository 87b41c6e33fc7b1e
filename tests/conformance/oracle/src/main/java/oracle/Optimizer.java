package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.STRING;
import static oracle.Words.*;

import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;

/** The optimiser: merged repartition topics, source topics as changelogs, self joins. */
final class Optimizer implements Harness.Area {
    private static final String GROUP = "Optimization";

    private static Harness.Definition two(final Harness.Registry r, final String name, final String description) {
        return r.add(name, GROUP, description).source("in", STRING, STRING)
            .sink("counts", STRING, LONG).sink("out", STRING, STRING).random(Naming.letters());
    }

    private static void twoGroupings(final KStream<String, String> keyed) {
        keyed.groupByKey().count(as("c")).toStream().to("counts");
        keyed.groupByKey().aggregate(() -> "", DOTTED, as("d")).toStream().to("out");
    }

    @Override
    public void register(final Harness.Registry r) {
        final Harness.Dsl plainGroupings = (b, e) -> twoGroupings(stream(b, "in").selectKey((k, v) -> first(v)));
        two(r, "merged-groupings", "in.selectKey(first character): groupByKey.count(`c`), groupByKey.aggregate(dotted; `d`); optimised: all.")
            .config(OPTIMIZE, "all").dsl(plainGroupings);
        two(r, "merged-groupings-off", "As merged-groupings, not optimised.").dsl(plainGroupings);
        two(r, "merged-groupings-alone", "As merged-groupings, optimised: merge.repartition.topics only.")
            .config(OPTIMIZE, "merge.repartition.topics").dsl(plainGroupings);
        two(r, "merged-groupings-other", "As merged-groupings, optimised: reuse.ktable.source.topics only.")
            .config(OPTIMIZE, "reuse.ktable.source.topics").dsl(plainGroupings);
        two(r, "merged-groupings-map-values", "keyed = in.selectKey(first character); keyed.mapValues(v + '!').groupByKey.aggregate(dotted; `d`); keyed.filter(last digit even).groupByKey.count(`c`); keyed.groupByKey.reduce(a + ',' + v; `r`) -> out; optimised: all.")
            .config(OPTIMIZE, "all")
            .dsl((b, e) -> {
                KStream<String, String> keyed = stream(b, "in").selectKey((k, v) -> first(v));
                keyed.mapValues(v -> v + "!").groupByKey().aggregate(() -> "", DOTTED, as("d")).toStream().to("out");
                keyed.filter((k, v) -> v != null && even(v)).groupByKey().count(as("c")).toStream().to("counts");
                keyed.groupByKey().reduce(COMMA, as("r")).toStream().to("out");
            });
        two(r, "merged-groupings-named", "keyed = in.selectKey(first character): groupByKey(named `g1`).count(`c`), groupByKey(named `g2`).aggregate(dotted; `d`); optimised: all.")
            .config(OPTIMIZE, "all")
            .dsl((b, e) -> {
                KStream<String, String> keyed = stream(b, "in").selectKey((k, v) -> first(v));
                keyed.groupByKey(Grouped.as("g1")).count(as("c")).toStream().to("counts");
                keyed.groupByKey(Grouped.as("g2")).aggregate(() -> "", DOTTED, as("d")).toStream().to("out");
            });
        two(r, "merged-group-bys", "in.groupBy(first character).count(`c`), in.groupBy(last character).aggregate(dotted; `d`): two keys, two topics; optimised: all.")
            .config(OPTIMIZE, "all")
            .dsl((b, e) -> {
                KStream<String, String> in = stream(b, "in").filter((k, v) -> v != null);
                in.groupBy((k, v) -> first(v)).count(as("c")).toStream().to("counts");
                in.groupBy((k, v) -> last(v)).aggregate(() -> "", DOTTED, as("d")).toStream().to("out");
            });
        two(r, "merged-two-key-changes", "first = in.selectKey(first character).mapValues(v + '!'); first.groupByKey.count(`c`); first.map((last-but-one character, v)).groupByKey.aggregate(dotted; `d`), and the same map'd stream.groupByKey.reduce(a + ',' + v; `r`) -> out; optimised: all.")
            .config(OPTIMIZE, "all")
            .dsl((b, e) -> {
                KStream<String, String> first = stream(b, "in").filter((k, v) -> v != null)
                    .selectKey((k, v) -> first(v)).mapValues(v -> v + "!");
                first.groupByKey().count(as("c")).toStream().to("counts");
                KStream<String, String> mapped =
                    first.map((k, v) -> KeyValue.pair(v.substring(v.length() - 2, v.length() - 1), v));
                mapped.groupByKey().aggregate(() -> "", DOTTED, as("d")).toStream().to("out");
                mapped.groupByKey().reduce(COMMA, as("r")).toStream().to("out");
            });
        two(r, "merged-explicit-repartition", "keyed = in.selectKey(first character).repartition(named `rp`): two groupings as in merged-groupings; optimised: all.")
            .config(OPTIMIZE, "all")
            .dsl((b, e) -> twoGroupings(stream(b, "in").selectKey((k, v) -> first(v)).repartition(Repartitioned.as("rp"))));
        two(r, "merged-flat-map", "in.flatMap: (first character, v), (last character, v): two groupings, the second after peek(log k=v); optimised: all.")
            .config(OPTIMIZE, "all")
            .dsl((b, e) -> {
                KStream<String, String> keyed = stream(b, "in").flatMap((k, v) -> v == null
                    ? java.util.List.<KeyValue<String, String>>of()
                    : java.util.List.of(KeyValue.pair(first(v), v), KeyValue.pair(last(v), v)));
                keyed.groupByKey().count(as("c")).toStream().to("counts");
                keyed.peek((k, v) -> e.add(k + "=" + v)).groupByKey().aggregate(() -> "", DOTTED, as("d")).toStream().to("out");
            });
        final Harness.Dsl throughMerge = (b, e) -> twoGroupings(
            stream(b, "left").selectKey((k, v) -> first(v)).merge(stream(b, "right").selectKey((k, v) -> first(v))));
        r.add("merged-through-merge", GROUP, "left.selectKey(first character).merge(right.selectKey(first character)): two groupings as in merged-groupings; optimised: all.")
            .source("left", STRING, STRING).source("right", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING)
            .config(OPTIMIZE, "all").dsl(throughMerge);
        r.add("merged-through-merge-off", GROUP, "As merged-through-merge, not optimised.")
            .source("left", STRING, STRING).source("right", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING)
            .dsl(throughMerge);
        r.add("merged-one-side-of-merge", GROUP, "left.selectKey(first character).mapValues(v + '!').merge(right): two groupings as in merged-groupings; optimised: all.")
            .source("left", STRING, STRING).source("right", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING)
            .config(OPTIMIZE, "all")
            .dsl((b, e) -> twoGroupings(stream(b, "left").selectKey((k, v) -> first(v)).mapValues(v -> v + "!").merge(stream(b, "right"))));
        r.add("merged-join-and-grouping", GROUP, "keyed = in.selectKey(part before ':'); keyed.join(table, plus) -> out; keyed.groupByKey.count(`c`) -> counts; optimised: all.")
            .source("in", STRING, STRING).source("table", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING)
            .config(OPTIMIZE, "all").random(Inputs.of().values("in", Inputs.references("a", "b", "c")))
            .dsl((b, e) -> {
                KStream<String, String> keyed = stream(b, "in").selectKey(TO_REFERENCE);
                keyed.join(table(b, "table", "tab"), PLUS).to("out");
                keyed.groupByKey().count(as("c")).toStream().to("counts");
            });
        strings(r, "merged-stream-join-and-grouping", "Stream-stream joins", "keyed = left.selectKey(part before ':'); keyed.leftJoin(right, plus, 10 ms, grace 15 ms; name and store `j`) -> out; keyed.mapValues(upper case).groupByKey.aggregate(dotted; `d`) -> out; optimised: all.", "left", "right")
            .config(OPTIMIZE, "all").config(EMIT_INTERVAL, 0).random(Inputs.of().values("left", Inputs.references("a", "b", "c")))
            .dsl((b, e) -> {
                KStream<String, String> keyed = stream(b, "left").selectKey(TO_REFERENCE);
                keyed.leftJoin(stream(b, "right"), PLUS, WINDOWS, StreamJoined.<String, String, String>as("j").withName("j")).to("out");
                keyed.mapValues(v -> v == null ? null : v.toUpperCase()).groupByKey().aggregate(() -> "", DOTTED, as("d")).toStream().to("out");
            });
        final Harness.Dsl reuse = (b, e) -> {
            KTable<String, String> in = table(b, "in", "tab");
            in.filter((k, v) -> even(v)).toStream().to("out");
            KTable<String, String> other = table(b, "other");
            other.toStream().join(in, PLUS).to("out");
            other.join(in, PLUS).toStream().to("out");
        };
        strings(r, "reused-source-topics", GROUP, "in = table(`tab`): filter(last digit even) -> out; other = table, unnamed: other.toStream.join(in) -> out; other.join(in) -> out; optimised: all: the sources' topics are the changelogs.", "in", "other")
            .config(OPTIMIZE, "all").dsl(reuse);
        strings(r, "reused-source-topics-alone", GROUP, "As reused-source-topics, optimised: reuse.ktable.source.topics only.", "in", "other")
            .config(OPTIMIZE, "reuse.ktable.source.topics").dsl(reuse);
        strings(r, "reused-source-topics-off", GROUP, "As reused-source-topics, not optimised.", "in", "other")
            .dsl(reuse);

        final Harness.Dsl self = (b, e) -> {
            KStream<String, String> in = stream(b, "in");
            in.join(in, PLUS, WINDOWS).to("out");
        };
        strings(r, "self-join-alone", "Stream-stream joins", "s.join(s, plus, 10 ms, grace 15 ms), unnamed; optimised: single.store.self.join only.", "in")
            .config(OPTIMIZE, "single.store.self.join").dsl(self);
        strings(r, "self-join-merge-only", "Stream-stream joins", "As self-join-alone, optimised: merge.repartition.topics only, so two stores.", "in")
            .config(OPTIMIZE, "merge.repartition.topics").dsl(self);
        strings(r, "self-left-join-optimized", "Stream-stream joins", "s.leftJoin(s, plus, 10 ms, grace 15 ms; name and store `j`); optimised: all, but a left join is no self join.", "in")
            .config(OPTIMIZE, "all").config(EMIT_INTERVAL, 0)
            .dsl((b, e) -> {
                KStream<String, String> in = stream(b, "in");
                in.leftJoin(in, PLUS, WINDOWS, StreamJoined.<String, String, String>as("j").withName("j")).to("out");
            });
        final Harness.Dsl twoReads = (b, e) -> stream(b, "in").join(stream(b, "in"), PLUS, WINDOWS).to("out");
        strings(r, "self-join-two-reads", "Stream-stream joins", "stream(in).join(stream(in), plus, 10 ms, grace 15 ms), unnamed, not optimised.", "in").dsl(twoReads);
        strings(r, "self-join-two-reads-optimized", "Stream-stream joins", "As self-join-two-reads, optimised: all.", "in")
            .config(OPTIMIZE, "all").dsl(twoReads);
        strings(r, "self-join-mapped-optimized", "Stream-stream joins", "m = in.mapValues(v + '!'): m.join(m, plus, before 20 ms, after 5 ms, grace 15 ms; name and store `j`); optimised: all.", "in")
            .config(OPTIMIZE, "all")
            .dsl((b, e) -> {
                KStream<String, String> m = stream(b, "in").mapValues(v -> v == null ? null : v + "!");
                m.join(m, PLUS, WINDOWS.before(Harness.ms(20)).after(Harness.ms(5)), StreamJoined.<String, String, String>as("j").withName("j")).to("out");
            });
        strings(r, "self-join-one-side-mapped-optimized", "Stream-stream joins", "in.join(in.mapValues(v + '!'), plus, 10 ms, grace 15 ms), unnamed; optimised: all.", "in")
            .config(OPTIMIZE, "all")
            .dsl((b, e) -> {
                KStream<String, String> in = stream(b, "in");
                in.join(in.mapValues(v -> v == null ? null : v + "!"), PLUS, WINDOWS).to("out");
            });
        strings(r, "self-join-rekeyed-optimized", "Stream-stream joins", "keyed = in.selectKey(part before ':'): keyed.join(keyed, plus, 10 ms, grace 15 ms), unnamed; optimised: all.", "in")
            .config(OPTIMIZE, "all").random(Inputs.of().values("in", Inputs.references("a", "b")))
            .dsl((b, e) -> {
                KStream<String, String> keyed = stream(b, "in").selectKey(TO_REFERENCE);
                keyed.join(keyed, PLUS, WINDOWS).to("out");
            });
        strings(r, "self-join-rekeyed", "Stream-stream joins", "keyed = in.selectKey(part before ':'): keyed.join(keyed, plus, 10 ms, grace 15 ms; name and store `j`), not optimised.", "in")
            .random(Inputs.of().values("in", Inputs.references("a", "b")))
            .dsl((b, e) -> {
                KStream<String, String> keyed = stream(b, "in").selectKey(TO_REFERENCE);
                keyed.join(keyed, PLUS, WINDOWS, StreamJoined.<String, String, String>as("j").withName("j")).to("out");
            });
        strings(r, "self-join-no-grace-optimized", "Stream-stream joins", "s.join(s, key: a + b, 5 ms, no grace; name `j`), then s.join(s) with 20 ms again, unnamed; optimised: all.", "in")
            .config(OPTIMIZE, "all").random(Inputs.of().step(4))
            .dsl((b, e) -> {
                KStream<String, String> in = stream(b, "in");
                in.join(in, KEY_PLUS, org.apache.kafka.streams.kstream.JoinWindows.ofTimeDifferenceWithNoGrace(Harness.ms(5)),
                    StreamJoined.<String, String, String>as(null).withName("j")).to("out");
                in.join(in, PLUS, org.apache.kafka.streams.kstream.JoinWindows.ofTimeDifferenceWithNoGrace(Harness.ms(20))).to("out");
            });
        r.add("optimized-all-together", GROUP, "keyed = in.selectKey(part before ':'); joined = keyed.leftJoin(table `tab`, plus); joined -> out; joined.groupByKey.count(`c`) -> counts; keyed.groupByKey.aggregate(dotted; `d`) -> toStream -> join with table `tab` -> out; optimised: all.")
            .source("in", STRING, STRING).source("table", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING)
            .config(OPTIMIZE, "all").random(Inputs.of().values("in", Inputs.references("a", "b", "c")))
            .dsl((b, e) -> {
                KTable<String, String> tab = table(b, "table", "tab");
                KStream<String, String> keyed = stream(b, "in").selectKey(TO_REFERENCE);
                KStream<String, String> joined = keyed.leftJoin(tab, PLUS);
                joined.to("out");
                joined.groupByKey().count(as("c")).toStream().to("counts");
                keyed.groupByKey().aggregate(() -> "", DOTTED, as("d")).toStream().join(tab, PLUS).to("out");
            });
    }
}
