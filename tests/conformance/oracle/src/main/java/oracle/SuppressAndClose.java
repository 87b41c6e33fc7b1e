package oracle;

import static oracle.Harness.ms;
import static oracle.Sketch.*;

import java.util.Map;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

/** Suppress, and emit on window close. */
final class SuppressAndClose {
    private SuppressAndClose() {}

    static void all() {
        suppress();
        emitClose();
    }

    private static void suppress() {
        add("suppress-windowed-filter-map", "Suppress",
            "Stream `in` (string, string) -> groupByKey -> tumbling 50 ms, grace 20 ms -> count(store `counts`) -> filter(n > 1) -> mapValues(n * 10; Materialized.with serdes only) -> suppress(untilWindowCloses, unbounded) -> toStream -> `out`.",
            topics("> in s s", "< out w50 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).count(win("counts", L))
                    .filter((w, n) -> n > 1)
                    .mapValues(n -> n * 10, Materialized.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 50), L))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "in a x 0; in a y 10; in b z 60; in a w 30; in a v 120; in a v 130; in c - 300",
            feed().values("in", letters()));
        add("suppress-windowed-filter-materialized", "Suppress",
            "Stream `in` (string, string) -> groupByKey -> tumbling 50 ms, grace 20 ms -> count(store `counts`) -> filter(n odd; store `odd`) -> suppress(untilWindowCloses, unbounded; named `final`) -> toStream -> `out`.",
            topics("> in s s", "< out w50 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).count(win("counts", L))
                    .filter((w, n) -> n % 2 == 1, Materialized.<Windowed<String>, Long, KeyValueStore<Bytes, byte[]>>as("odd")
                        .withKeySerde(WindowedSerdes.timeWindowedSerdeFrom(String.class, 50)).withValueSerde(L))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("final")).toStream()
                    .to("out");
            },
            "in a x 0; in a y 10; in b z 60; in a w 30; in a v 120; in a v 130; in c - 300",
            feed().values("in", letters()));
        add("suppress-strict-max-records", "Suppress",
            "Stream `in` (string, string) -> groupByKey -> tumbling 50 ms, grace 20 ms -> count(store `counts`) -> suppress(untilWindowCloses, at most 3 records, shut down when full) -> toStream -> `out`. The trace ends with the overflow.",
            topics("> in s s", "< out w50 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).count(win("counts", L))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.maxRecords(3).shutDownWhenFull())).toStream().to("out");
            },
            "in a x 0; in b y 10; in c z 20; in a w 30; in b v 71; in c w 75; in d u 72; in e u 73",
            feed().late(25, 10).values("in", letters()));
        add("suppress-strict-max-bytes", "Suppress",
            "Stream `in` (string, string) -> groupByKey -> tumbling 50 ms, grace 20 ms -> aggregate(agg + \".\" + value; store `agg`) -> suppress(untilWindowCloses, at most 250 bytes, shut down when full) -> toStream -> `out`.",
            topics("> in s s", "< out w50 s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + t(v), win("agg", S))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.maxBytes(250).shutDownWhenFull())).toStream().to("out");
            },
            "in a x 0; in b y 10; in c z 20; in a w 30; in b v 71; in c w 75; in d u 72; in a longer-text 73; in a even-longer-text 74; in b more 76; in c more 77; in e u 78",
            feed().late(25, 10).values("in", letters()));
        add("suppress-emit-early-bytes", "Suppress",
            "Table `in` (string, string; store `tab`) -> suppress(untilTimeLimit 1000 ms, at most 150 bytes, emit early when full) -> toStream -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.table("in", SS, kv("tab", S))
                    .suppress(Suppressed.untilTimeLimit(ms(1000), Suppressed.BufferConfig.maxBytes(150).emitEarlyWhenFull())).toStream().to("out");
            },
            "in a x 0; in b yy 5; in c zzz 10; in d wwww 15; in a x1 20; in b - 25; in e vvvvv 30; in f uuuuuu 12; in a much-longer-value-than-before 40; in g t 50",
            feed().keys("in", "a", "b", "c", "d", "e", "f", "g", "longkey").headers(30).values("in", oneOf("x", "yy", "zzz", "a-long-value", "medium")));
        add("suppress-strict-time-limit", "Suppress",
            "Table `in` (string, long; store `tab`) -> suppress(untilTimeLimit 40 ms, at most 4 records, shut down when full) -> toStream -> `out`.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                b.table("in", SL, kv("tab", L))
                    .suppress(Suppressed.untilTimeLimit(ms(40), Suppressed.BufferConfig.maxRecords(4).shutDownWhenFull())).toStream().to("out");
            },
            "in a 1 0; in b 2 5; in c 3 10; in d 4 15; in a 5 20; in e 6 60; in f 7 61; in g 8 62; in h 9 63; in i 9 64",
            feed().step(16).late(25, 10).values("in", longs(20)));
        add("suppress-sliding-named", "Suppress",
            "Stream `in` (string, string) -> groupByKey -> sliding windows, difference 12 ms, grace 8 ms -> count(store `counts`) -> suppress(untilWindowCloses, unbounded; named `held`) -> toStream -> `out`.",
            topics("> in s s", "< out w12 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(12), ms(8))).count(win("counts", L))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("held")).toStream().to("out");
            },
            "in a x 10; in a y 15; in b z 18; in a w 30; in a v 27; in b u 60; in a t 45; in a s 100",
            feed().step(8).late(25, 25).values("in", letters()));
        add("suppress-session-time-limit", "Suppress",
            "Stream `in` (string, string) -> groupByKey -> session windows, gap 20 ms, grace 30 ms -> count(store `counts`) -> suppress(untilTimeLimit 25 ms, unbounded) -> toStream -> `out`.",
            topics("> in s s", "< out x l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(30))).count(ses("counts", L))
                    .suppress(Suppressed.untilTimeLimit(ms(25), Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "in a x 0; in a y 10; in b z 30; in a w 40; in a v 25; in b u 80; in a t 81; in b s 120",
            feed().values("in", letters()));
        add("suppress-session-merged-away", "Suppress",
            "Stream `in` (string, string) -> groupByKey -> session windows, gap 30 ms, grace 10 ms -> reduce(agg + \",\" + v; store `red`) -> suppress(untilWindowCloses, at most 50 records, shut down when full) -> mapValues(v + \"!\") -> toStream -> `out`.",
            topics("> in s s", "< out x s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(30), ms(10)))
                    .reduce((a, v) -> t(a) + "," + t(v), ses("red", S))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.maxRecords(50).shutDownWhenFull()))
                    .mapValues(v -> v + "!").toStream().to("out", Produced.valueSerde(S));
            },
            "in a x 0; in a y 35; in a z 20; in b w 76; in a v 60; in a u 140; in b t 200",
            feed().step(18).late(25, 40).values("in", letters()));
        add("suppress-filtered-table", "Suppress",
            "Table `in` (string, long; store `tab`) -> filter(v even) -> suppress(untilTimeLimit 25 ms, unbounded) -> toStream -> `out`.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                b.table("in", SL, kv("tab", L)).filter((k, v) -> v % 2 == 0)
                    .suppress(Suppressed.untilTimeLimit(ms(25), Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "in a 2 0; in b 1 5; in a 3 10; in c 4 30; in a 6 32; in b 8 33; in b - 34; in d 2 60; in e 1 90",
            feed().values("in", longs(20)));
        add("suppress-then-join", "Suppress",
            "Tables `left` and `right` (string, string; stores `ltab`, `rtab`): left.suppress(untilTimeLimit 30 ms, unbounded).leftJoin(right, left + \"+\" + right) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out s s"), Map.of(), (b, x) -> {
                b.table("left", SS, kv("ltab", S)).suppress(Suppressed.untilTimeLimit(ms(30), Suppressed.BufferConfig.unbounded()))
                    .leftJoin(b.table("right", SS, kv("rtab", S)), (l, r) -> t(l) + "+" + t(r)).toStream().to("out");
            },
            "left a x 0; right a 1 5; left a y 10; left b z 40; right a 2 41; right b 3 42; left a - 50; left c w 90; right a - 91; left d v 140",
            feed().values("left", letters()).values("right", letters()));
        add("suppress-then-group-by", "Suppress",
            "Table `in` (string, long; store `tab`) -> suppress(untilTimeLimit 20 ms, at most 5 records, emit early) -> groupBy((k, v) -> (\"g\" + v % 3, v); named `grp`; string, long) -> reduce(add, subtract; store `sum`) -> toStream -> `out`.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                b.table("in", SL, kv("tab", L))
                    .suppress(Suppressed.untilTimeLimit(ms(20), Suppressed.BufferConfig.maxRecords(5).emitEarlyWhenFull()))
                    .groupBy((k, v) -> KeyValue.pair("g" + v % 3, v), Grouped.with("grp", S, L))
                    .reduce(Long::sum, (a, v) -> a - v, kv("sum", L)).toStream().to("out");
            },
            "in a 1 0; in b 2 5; in a 4 10; in c 3 30; in a 5 31; in a 6 55; in b - 56; in d 9 80; in e 9 120",
            feed().values("in", longs(9)));
        add("suppress-twice", "Suppress",
            "Stream `in` (string, string) -> groupByKey -> hopping 40 ms by 20 ms, grace 10 ms -> count(store `counts`) -> suppress(untilTimeLimit 10 ms, unbounded) -> suppress(untilWindowCloses, unbounded) -> toStream -> `out`.",
            topics("> in s s", "< out w40 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(10)).advanceBy(ms(20))).count(win("counts", L))
                    .suppress(Suppressed.untilTimeLimit(ms(10), Suppressed.BufferConfig.unbounded()))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "in a x 0; in a y 15; in b z 60; in a w 35; in a v 120; in b v 121; in c u 200",
            feed().values("in", letters()));
    }

    private static void emitClose() {
        add("emit-close-hopping-retention", "Emit on window close",
            "Stream `in` (string, string) -> groupByKey -> hopping 60 ms by 20 ms, grace 10 ms, EmitStrategy.onWindowClose -> count(store `counts`, retention 1000 ms) -> toStream -> `out`.",
            topics("> in s s", "< out w60 l"), EMIT0, (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(60), ms(10)).advanceBy(ms(20)))
                    .emitStrategy(EmitStrategy.onWindowClose()).count(win("counts", L).withRetention(ms(1000))).toStream().to("out");
            },
            "in a x 5; in b y 30; in a z 70; in a w 20; in b v 100; in a u 300; in a - 301; in - q 400; in a t 350",
            feed().values("in", letters()));
        add("emit-close-sliding-retention", "Emit on window close",
            "Stream `in` (string, string) -> groupByKey -> sliding windows, difference 20 ms, grace 10 ms, EmitStrategy.onWindowClose -> reduce(agg + \",\" + v; store `red`, retention 500 ms) -> toStream -> `out`.",
            topics("> in s s", "< out w20 s"), EMIT0, (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(20), ms(10)))
                    .emitStrategy(EmitStrategy.onWindowClose()).reduce((a, v) -> a + "," + v, win("red", S).withRetention(ms(500))).toStream().to("out");
            },
            "in a x 5; in a y 15; in b z 30; in a w 28; in a v 46; in b u 90; in a t 70; in c s 200",
            feed().length(16, 22).step(8).late(25, 25).values("in", letters()));
        add("emit-close-session-retention", "Emit on window close",
            "Stream `in` (string, string) -> groupByKey -> session windows, gap 20 ms, grace 10 ms, EmitStrategy.onWindowClose -> aggregate(agg + \".\" + v, merger a + \"&\" + b; store `agg`, retention 2000 ms) -> toStream -> `out`.",
            topics("> in s s", "< out x s"), EMIT0, (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(10)))
                    .emitStrategy(EmitStrategy.onWindowClose())
                    .aggregate(() -> "", (k, v, a) -> a + "." + t(v), (k, p, q) -> p + "&" + q, ses("agg", S).withRetention(ms(2000)))
                    .toStream().to("out");
            },
            "in a x 0; in a y 40; in a z 20; in b w 60; in a v 71; in b u 72; in a t 150; in b s 140; in c r 400",
            feed().values("in", letters()));
        add("emit-close-session-interval", "Emit on window close",
            "Stream `in` (string, string) -> groupByKey -> session windows, gap 15 ms, grace 5 ms, EmitStrategy.onWindowClose, default emit interval (1000 ms of wall clock) -> count(store `counts`, retention 10000 ms) -> toStream -> `out`.",
            topics("> in s s", "< out x l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(15), ms(5)))
                    .emitStrategy(EmitStrategy.onWindowClose()).count(ses("counts", L).withRetention(ms(10000))).toStream().to("out");
            },
            "in a x 0; in a y 40; in a z 80; + 999; in b w 100; + 1; in b v 120; in a v 160; + 1000; in a u 161; in a t 120; + 3000; in c r 400",
            feed().advances(15, 1500).values("in", letters()));
        add("emit-close-sliding-interval", "Emit on window close",
            "Stream `in` (string, string) -> groupByKey -> sliding windows, difference 10 ms, grace 5 ms, EmitStrategy.onWindowClose, default emit interval -> count(store `counts`, retention 10000 ms) -> toStream -> `out`.",
            topics("> in s s", "< out w10 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(10), ms(5)))
                    .emitStrategy(EmitStrategy.onWindowClose()).count(win("counts", L).withRetention(ms(10000))).toStream().to("out");
            },
            "in a x 20; in a y 25; in a z 80; + 999; in b w 100; + 1; in b v 120; in a v 160; + 1000; in a u 161; in a t 120; + 3000; in c r 400",
            feed().advances(15, 1500).values("in", letters()));
        add("emit-close-tumbling-big-times", "Emit on window close",
            "Stream `in` (string, string), big times -> groupByKey -> tumbling 60 s, grace 30 s, EmitStrategy.onWindowClose, default emit interval -> reduce(agg + \",\" + v; store `red`, retention 2 h) -> toStream -> `out`.",
            topics("> in s s", "< out w60000 s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(60_000), ms(30_000)))
                    .emitStrategy(EmitStrategy.onWindowClose()).reduce((a, v) -> t(a) + "," + t(v), win("red", S).withRetention(ms(7_200_000)))
                    .toStream().to("out");
            },
            "in a x 1700000000000; in b y 1700000030000; + 1000; in a z 1700000100000; in a w 1700000070000; + 2000; in b v 1700003700000; in a u 1700003650000; + 1000; in a t 1700020000000; in a s 1700019990000",
            big().advances(15, 1500).values("in", letters()));
        add("emit-close-group-by-named", "Emit on window close",
            "Stream `in` (string, string) -> groupBy(value; named `grp`) -> tumbling 30 ms, grace 10 ms, EmitStrategy.onWindowClose -> count(named `counted`, store `counts`, retention 500 ms) -> mapValues(n * 2) -> toStream(named `streamed`) -> `out` (named `sunk`).",
            topics("> in s s", "< out w30 l"), EMIT0, (b, x) -> {
                b.stream("in", SS).groupBy((k, v) -> v, Grouped.with("grp", S, S)).windowedBy(TimeWindows.ofSizeAndGrace(ms(30), ms(10)))
                    .emitStrategy(EmitStrategy.onWindowClose()).count(Named.as("counted"), win("counts", L).withRetention(ms(500)))
                    .mapValues(n -> n * 2).toStream(Named.as("streamed"))
                    .to("out", Produced.<Windowed<String>, Long>valueSerde(L).withName("sunk"));
            },
            "in a x 0; in b x 10; in a y 20; in b - 30; in a x 45; in a x 100; in b y 71",
            feed().values("in", oneOf("x", "y", "z")));
        add("emit-close-then-count", "Emit on window close",
            "Stream `in` (string, string) -> groupByKey -> hopping 40 ms by 20 ms, no grace, EmitStrategy.onWindowClose -> aggregate(init \"\", null when v is DEL else agg + v; store `agg`, retention 400 ms) -> toStream -> selectKey(key) -> groupByKey(string, string; named `again`) -> count(store `finals`) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), EMIT0, (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeWithNoGrace(ms(40)).advanceBy(ms(20)))
                    .emitStrategy(EmitStrategy.onWindowClose())
                    .aggregate(() -> "", (k, v, a) -> "DEL".equals(v) ? null : a + t(v), win("agg", S).withRetention(ms(400)))
                    .toStream().selectKey((w, v) -> w.key()).groupByKey(Grouped.with("again", S, S)).count(kv("finals", L)).toStream().to("out");
            },
            "in a x 0; in b DEL 10; in a DEL 25; in a z 70; in b - 90; in a w 100; in a DEL 101; in b v 300",
            feed().values("in", oneOf("x", "y", "DEL")));
    }
}
