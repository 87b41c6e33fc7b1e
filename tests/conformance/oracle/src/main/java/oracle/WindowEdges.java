package oracle;

import static oracle.Harness.ms;
import static oracle.Sketch.*;

import java.util.Map;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

/** Windowed tables joined, optimized topologies, names and edges. */
final class WindowEdges {
    private WindowEdges() {}

    static void all() {
        further();
    }

    private static void further() {
        add("windowed-table-left-join", "Windowed tables",
            "Streams `left` and `right` (string, string): left -> groupByKey -> tumbling 50 ms, grace 20 ms -> count(store `counts`); right -> groupByKey -> tumbling 50 ms, grace 40 ms -> reduce(a + \",\" + v; store `red`); counts.leftJoin(red, n + \"/\" + v; store `joined`) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out w50 s"), Map.of(), (b, x) -> {
                var counts = b.stream("left", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).count(win("counts", L));
                var red = b.stream("right", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(40))).reduce((a, v) -> t(a) + "," + t(v), win("red", S));
                counts.leftJoin(red, (n, v) -> t(n) + "/" + t(v), Materialized.<Windowed<String>, String, KeyValueStore<Bytes, byte[]>>as("joined")
                    .withKeySerde(WindowedSerdes.timeWindowedSerdeFrom(String.class, 50)).withValueSerde(S)).toStream().to("out");
            },
            "left a x 0; right a y 10; right a z 60; left a w 70; right a v 20; right b u 130; left a t 55; right a s 52; left b r 131",
            feed().late(25, 90).values("left", letters()));
        add("session-table-outer-join", "Windowed tables",
            "Streams `left` and `right` (string, string), both -> groupByKey -> session windows, gap 20 ms, grace 30 ms -> count(stores `lc`, `rc`); outerJoin(l + \"/\" + r) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out x s"), Map.of(), (b, x) -> {
                var left = b.stream("left", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(30))).count(ses("lc", L));
                var right = b.stream("right", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(30))).count(ses("rc", L));
                left.outerJoin(right, (l, r) -> t(l) + "/" + t(r)).toStream().to("out", Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), S));
            },
            "left a x 0; right a y 0; left a z 10; right a w 10; left b v 50; right a u 100; left a t 100; right a s 80; left a r 85",
            feed().step(5).values("left", letters()));
        add("cached-windowed-table-join", "Windowed tables",
            "Cache of 10 MB. Stream `in` (string, string) -> words as in cached-tumbling -> groupByKey: count in tumbling windows of 50 ms, grace 30 ms (store `counts`), and aggregate(agg + v) in the same windows (store `agg`, caching disabled); counts.join(agg, n + \"/\" + v) -> toStream -> `out`.",
            topics("> in s s", "< out w50 s"), cache(10485760), (b, x) -> {
                var g = spread(b).groupByKey();
                var counts = g.windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(30))).count(win("counts", L));
                var agg = g.windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(30))).aggregate(() -> "", (k, v, a) -> a + v, win("agg", S).withCachingDisabled());
                counts.join(agg, (n, v) -> n + "/" + v).toStream().to("out", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 50), S));
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45",
            feed().length(12, 16).values("in", phrase()));
        add("windowed-filter-join", "Windowed tables",
            "Stream `in` (string, long) -> groupByKey: sums = tumbling 40 ms, grace 40 ms -> reduce(a + v, nulls as 0; store `sums`); sums.filter(v even).outerJoin(sums.filter(v > 5).mapValues(v * 10), l + \"|\" + r) -> toStream -> `out`.",
            topics("> in s l", "< out w40 s"), Map.of(), (b, x) -> {
                var sums = b.stream("in", SL).groupByKey(Grouped.with(S, L)).windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(40)))
                    .reduce((a, v) -> (a == null ? 0 : a) + (v == null ? 0 : v), win("sums", L));
                sums.filter((w, v) -> v % 2 == 0).outerJoin(sums.filter((w, v) -> v > 5).mapValues(v -> v * 10), (l, r) -> t(l) + "|" + t(r))
                    .toStream().to("out", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 40), S));
            },
            "in a 2 0; in a 3 10; in a 4 20; in b 7 60; in a 1 50; in a - 55; in b - 90; in a 6 30",
            feed().values("in", longs(9)));
        add("optimized-merged-repartitions", "Optimized",
            "topology.optimization = all. Stream `in` (string, string) -> map((v, k)): (1) groupByKey -> count(store `c`) -> toStream -> `counts`; (2) groupByKey -> tumbling 40 ms, grace 10 ms -> reduce(a + v; store `r`) -> toStream -> `windows`; (3) mapValues(v + \"!\") -> groupByKey -> aggregate(init \"\", agg + v; store `a`) -> toStream -> `agg`.",
            topics("> in s s", "< agg s s", "< counts s l", "< windows w40 s"), OPTIMIZED, (b, x) -> {
                var s = b.stream("in", SS).map((k, v) -> KeyValue.pair(v, t(k)));
                s.groupByKey(Grouped.with(S, S)).count(kv("c", L)).toStream().to("counts");
                s.groupByKey(Grouped.with(S, S)).windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(10))).reduce((a, v) -> a + v, win("r", S)).toStream().to("windows");
                s.mapValues(v -> v + "!").groupByKey(Grouped.with(S, S)).aggregate(() -> "", (k, v, a) -> a + v, kv("a", S)).toStream().to("agg");
            },
            "in a x 0; in b x 10; in a y 20; in a - 30; in - x 90; in a x 30",
            feed().length(14, 18).values("in", oneOf("x", "y", "z")));
        add("optimized-source-tables", "Optimized",
            "topology.optimization = all. Tables `left` (string, string; no store name) and `right` (string, string; store `rtab`): left.leftJoin(right, l + \"+\" + r; store `joined`) -> toStream -> `out`; left -> filter(v not x; unmaterialized) -> toStream -> `some`.",
            topics("> left s s", "> right s s", "< out s s", "< some s s"), OPTIMIZED, (b, x) -> {
                var left = b.table("left", SS);
                left.leftJoin(b.table("right", SS, kv("rtab", S)), (l, r) -> t(l) + "+" + t(r), kv("joined", S)).toStream().to("out");
                left.filter((k, v) -> !v.startsWith("x")).toStream().to("some");
            },
            "left a x 0; right a y 10; left a z 5; right b w 20; left b v 15; left a - 30; right b - 31",
            feed().values("left", letters()));
        add("optimized-cascade", "Optimized",
            "topology.optimization = all. Stream `in` (string, string) -> selectKey(v) -> groupByKey -> count(store `one`) -> toStream -> selectKey(\"n\" + v) -> mapValues(v as text): (1) groupByKey(string, string) -> count(store `two`) -> toStream -> `two`; (2) leftJoin(table `names` (string, string; store `names`), v + \"=\" + name) -> `named`.",
            topics("> in s s", "> names s s", "< named s s", "< two s l"), OPTIMIZED, (b, x) -> {
                var s = b.stream("in", SS).selectKey((k, v) -> v).groupByKey(Grouped.with(S, S)).count(kv("one", L)).toStream()
                    .selectKey((k, v) -> "n" + v).mapValues(v -> "" + v);
                s.groupByKey(Grouped.with(S, S)).count(kv("two", L)).toStream().to("two");
                s.leftJoin(b.table("names", SS, kv("names", S)), (v, n) -> v + "=" + t(n), Joined.with(S, S, S)).to("named", Produced.with(S, S));
            },
            "in a x 0; in b x 10; names n1 One 5; in a y 20; names n2 Two 21; in a - 30; in - x 90; in a x 30",
            feed().keys("names", "n1", "n2", "n3").values("in", oneOf("x", "y", "z")));
        add("emit-close-session-big-times", "Windowed tables",
            "Stream `in` (string, string), big times -> groupByKey -> session windows, gap 60 s, grace 30 s, EmitStrategy.onWindowClose -> count(store `counts`; default retention) -> toStream -> `out`.",
            topics("> in s s", "< out x l"), EMIT0, (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(60_000), ms(30_000)))
                    .emitStrategy(EmitStrategy.onWindowClose()).count(ses("counts", L)).toStream().to("out");
            },
            "in a x 1700000000000; in a y 1700000050000; in b z 1700000100000; in a w 1700000200000; in b v 1700000250000; in a u 1700003600000; in b t 1700003700000; in a s 1700003800000",
            big().values("in", letters()));
        add("emit-close-hopping-big-times", "Windowed tables",
            "Stream `in` (string, string), big times -> groupByKey -> hopping 120 s by 60 s, grace 30 s, EmitStrategy.onWindowClose -> count(store `counts`; default retention) -> toStream -> `out`.",
            topics("> in s s", "< out w120000 l"), EMIT0, (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(120_000), ms(30_000)).advanceBy(ms(60_000)))
                    .emitStrategy(EmitStrategy.onWindowClose()).count(win("counts", L)).toStream().to("out");
            },
            "in a x 1700000000000; in a y 1700000050000; in b z 1700000100000; in a w 1700000200000; in b v 1700000250000; in a u 1700003600000; in b t 1700003700000; in a s 1700003800000",
            big().values("in", letters()));
        add("suppress-big-times", "Windowed tables",
            "Stream `in` (string, string), big times -> groupByKey -> sliding windows, difference 40 s, grace 60 s -> count(store `counts`) -> suppress(untilWindowCloses, unbounded) -> toStream -> `out`.",
            topics("> in s s", "< out w40000 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(40_000), ms(60_000))).count(win("counts", L))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "in a x 1700000000000; in a y 1700000030000; in b z 1700000100000; in a w 1700000080000; in b v 1700000250000; in a u 1700003600000; in b t 1700003700000; in a s 1700003800000",
            big().values("in", letters()));
        add("sliding-difference-one", "Edges",
            "Stream `in` (string, string) -> groupByKey -> sliding windows, difference 1 ms, grace 5 ms -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out w1 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(1), ms(5))).count(win("counts", L)).toStream().to("out");
            },
            "in a x 0; in a x 0; in a y 1; in a z 3; in a w 1; in a v 2; in b u 9; in a t 3; in a t 4",
            feed().step(3).late(30, 8).values("in", letters()));
        add("hopping-advance-one", "Edges",
            "Stream `in` (string, string) -> groupByKey -> hopping 4 ms by 1 ms, grace 3 ms -> aggregate(agg + v; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out w4 s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(4), ms(3)).advanceBy(ms(1)))
                    .aggregate(() -> "", (k, v, a) -> a + t(v), win("agg", S)).toStream().to("out");
            },
            "in a x 0; in a y 2; in a z 5; in a w 3; in b v 9; in a u 4",
            feed().length(12, 16).step(3).late(30, 6).values("in", oneOf("x", "y")));
        add("hopping-uneven", "Edges",
            "Stream `in` (string, string) -> groupByKey -> hopping 50 ms by 35 ms, no grace -> count(store `counts`, retention 50 ms) -> toStream -> `out`.",
            topics("> in s s", "< out w50 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeWithNoGrace(ms(50)).advanceBy(ms(35)))
                    .count(win("counts", L).withRetention(ms(50))).toStream().to("out");
            },
            "in a x 0; in a y 34; in a z 35; in a w 49; in b v 84; in a u 50; in a t 36; in a s 85",
            feed().values("in", letters()));
        add("everything-named", "Edges",
            "Stream `in` (string, string; named `source`) -> filter(v not null; named `present`) -> flatMapValues(split at _; named `words`) -> map((word, key); named `swap`) -> groupByKey(named `by-word`) -> tumbling 50 ms, grace 20 ms -> count(named `tally`; store `tally-store`) -> filter(n > 1; named `often`) -> mapValues(n * 2; named `twice`; long) -> suppress(untilTimeLimit 30 ms, unbounded; named `later`) -> toStream((window, n) -> key; named `flat`) -> peek(log; named `look`) -> `out` (named `sink`).",
            topics("> in s s", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SS.withName("source")).filter((k, v) -> v != null, Named.as("present")).flatMapValues(v -> words(v), Named.as("words"))
                    .map((k, v) -> KeyValue.pair(v, t(k)), Named.as("swap")).groupByKey(Grouped.with("by-word", S, S))
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).count(Named.as("tally"), win("tally-store", L))
                    .filter((w, n) -> n > 1, Named.as("often"))
                    .mapValues(n -> n * 2, Named.as("twice"), Materialized.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 50), L))
                    .suppress(Suppressed.<Windowed>untilTimeLimit(ms(30), Suppressed.BufferConfig.unbounded()).withName("later"))
                    .toStream((w, n) -> w.key(), Named.as("flat")).peek((k, v) -> x.add(t(k) + "=" + t(v)), Named.as("look"))
                    .to("out", Produced.with(S, L).withName("sink"));
            },
            "in a x_y 0; in b x 10; in a x_x 60; in a - 30; in - y 90; in a y_x 200",
            feed().values("in", phrase()));
        add("table-aggregate-null", "Edges",
            "Table `in` (string, long; store `tab`) -> groupBy((\"g\" + v % 2, v); named `grp`; string, long): (1) aggregate(init 0, null when v is 5 else agg + v, null when agg - v is 0 else agg - v; store `agg`) -> toStream -> `agg`; (2) reduce(null when v is 3 else a + v, a - v; store `red`) -> toStream -> `red`.",
            topics("> in s l", "< agg s l", "< red s l"), Map.of(), (b, x) -> {
                var g = b.table("in", SL, kv("tab", L)).groupBy((k, v) -> KeyValue.pair("g" + v % 2, v), Grouped.with("grp", S, L));
                g.aggregate(() -> 0L, (k, v, a) -> v == 5 ? null : (Long) (a + v), (k, v, a) -> a - v == 0 ? null : (Long) (a - v), kv("agg", L)).toStream().to("agg");
                g.reduce((a, v) -> v == 3 ? null : (Long) (a + v), (a, v) -> a - v, kv("red", L)).toStream().to("red");
            },
            "in a 1 0; in b 3 5; in a 5 10; in c 2 12; in c 4 13; in b 1 11; in c - 20; in a - 21; in d 3 22; in d 3 23",
            feed().values("in", longs(6)));
        add("tombstones-into-windows", "Edges",
            "Table `in` (string, string; store `tab`) -> toStream -> groupByKey: tumbling 50 ms, grace 20 ms -> aggregate(agg + \".\" + v; store `agg`) -> toStream -> `windows`; session windows, gap 15 ms, grace 20 ms -> count(store `ses`) -> toStream -> `sessions`; toTable again(store `again`) -> toStream -> `again`.",
            topics("> in s s", "< again s s", "< sessions x l", "< windows w50 s"), Map.of(), (b, x) -> {
                var s = b.table("in", SS, kv("tab", S)).toStream();
                s.groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).aggregate(() -> "", (k, v, a) -> a + "." + t(v), win("agg", S)).toStream().to("windows");
                s.groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(15), ms(20))).count(ses("ses", L)).toStream().to("sessions");
                s.toTable(kv("again", S)).toStream().to("again");
            },
            "in a x 0; in a - 10; in b y 60; in a z 70; in b - 30; in a w 65; in c - 80",
            feed().length(14, 18).values("in", letters()));
        add("stream-join-into-session", "Edges",
            "Outer join emit interval 0. Streams `left`, `right` (string, string): outerJoin(l + r, before 5 ms, after 15 ms, grace 10 ms; named and stored `j`) -> groupByKey -> session windows, gap 10 ms, grace 60 ms -> aggregate(agg + \".\" + v, merger a + \"&\" + b; store `agg`) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out x s"), JOIN0, (b, x) -> {
                b.stream("left", SS).outerJoin(b.stream("right", SS), (l, r) -> t(l) + t(r), JoinWindows.ofTimeDifferenceAndGrace(ms(5), ms(10)).after(ms(15)),
                    StreamJoined.with(S, S, S).withName("j").withStoreName("j")).groupByKey(Grouped.with(S, S))
                    .windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(10), ms(60)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, (k, p, q) -> p + "&" + q, ses("agg", S)).toStream().to("out");
            },
            "left a x 0; right a y 10; left a z 30; right a w 80; left a v 90; right b u 130; left b t 131; left a s 200; right a r 201",
            feed().values("left", letters()));
        add("cached-suppress-table", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey -> aggregate(agg + v; store `agg`) -> filter(v longer than 2; store `long`) -> suppress(untilTimeLimit 30 ms, at most 2 records, emit early) -> toStream -> `out`.",
            topics("> in s s", "< out s s"), cache(10485760), (b, x) -> {
                b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey().aggregate(() -> "", (k, v, a) -> a.length() > 5 ? v : a + v, kv("agg", S))
                    .filter((k, v) -> v.length() > 2, kv("long", S))
                    .suppress(Suppressed.untilTimeLimit(ms(30), Suppressed.BufferConfig.maxRecords(2).emitEarlyWhenFull())).toStream().to("out");
            },
            "in a x_y_z 0; in b x_y 10; in b x 12; in c x_y_z 15; in a y 40; in d x_y_z_w 41; in a x_x 90",
            feed().keys("in", "a", "b", "c", "d", "e").values("in", phrase()));
        add("cached-to-table-group-by", "Record cache",
            "Cache of 10 MB. Stream `in` (string, long) -> toTable(store `tab`) -> filter(v > 2) -> groupBy((\"g\" + v % 2, v); named `grp`; string, long) -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s l", "< out s l"), cache(10485760), (b, x) -> {
                b.stream("in", SL).toTable(kv("tab", L)).filter((k, v) -> v > 2).groupBy((k, v) -> KeyValue.pair("g" + v % 2, v), Grouped.with("grp", S, L))
                    .count(kv("counts", L)).toStream().to("out");
            },
            "in a 1 0; in b 3 5; in a 5 10; in c 2 12; in c 4 13; in b 1 11; in c - 20; in a - 21; in d 3 22; in d 3 23; in - 4 24",
            feed().values("in", longs(6)));
    }
}
