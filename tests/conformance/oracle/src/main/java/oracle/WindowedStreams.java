package oracle;

import static oracle.Harness.ms;
import static oracle.Sketch.*;

import java.time.Instant;
import java.util.Map;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

/** Windowed aggregations. */
final class WindowedStreams {
    private WindowedStreams() {}

    static void all() {
        windows();
    }

    private static void windows() {
        add("tumbling-aggregate-null", "Windows",
            "Stream `in` (string, string) -> groupByKey -> tumbling 50 ms, grace 20 ms -> aggregate(init \"i\", null when the value is DEL, else agg + \".\" + value; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out w50 s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20)))
                    .aggregate(() -> "i", (k, v, a) -> "DEL".equals(v) ? null : a + "." + t(v), win("agg", S))
                    .toStream().to("out");
            },
            "in a x 0; in a DEL 10; in a DEL 12; in a y 20; in a z 60; in a DEL 45; in b DEL 70; in a w 49; in a DEL 130; in a q 75",
            feed().values("in", oneOf("x", "y", "DEL", "z", "DEL")));
        add("hopping-reduce-null", "Windows",
            "Stream `in` (string, long) -> groupByKey -> hopping 60 ms by 25 ms, grace 15 ms -> reduce(null when v is null or 0, else agg + v; store `red`) -> toStream -> `out`.",
            topics("> in s l", "< out w60 l"), Map.of(), (b, x) -> {
                b.stream("in", SL).groupByKey(Grouped.with(S, L))
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(60), ms(15)).advanceBy(ms(25)))
                    .reduce((a, v) -> v == null || v == 0 ? null : a + v, win("red", L))
                    .toStream().to("out");
            },
            "in a 5 0; in a 3 30; in a 0 40; in a 7 45; in a - 55; in a 2 61; in b - 62; in b 4 63; in a 9 10; in a 1 200; in a 2 130",
            feed().values("in", longs(6)));
        add("sliding-reduce", "Windows",
            "Stream `in` (string, string) -> groupByKey -> sliding windows, difference 15 ms, grace 20 ms -> reduce(agg + \",\" + value; generated store name) -> toStream -> `out`.",
            topics("> in s s", "< out w15 s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(15), ms(20)))
                    .reduce((a, v) -> a + "," + v).toStream().to("out");
            },
            "in a p 10; in a q 20; in a r 25; in a s 12; in a t 40; in a u 33; in b v 41; in a w 5; in a - 50; in a y 90; in a z 60",
            feed().values("in", letters()));
        add("sliding-aggregate-null", "Windows",
            "Stream `in` (string, string) -> groupByKey -> sliding windows, difference 20 ms, grace 25 ms -> aggregate(init \"\", null when the value is DEL, else agg + value; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out w20 s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(20), ms(25)))
                    .aggregate(() -> "", (k, v, a) -> "DEL".equals(v) ? null : a + v, win("agg", S))
                    .toStream().to("out");
            },
            "in a x 10; in a y 15; in a DEL 18; in a z 20; in a DEL 12; in a q 40; in a w 35; in a DEL 35; in a v 36",
            feed().values("in", oneOf("x", "y", "z", "DEL")));
        add("session-reduce", "Windows",
            "Stream `in` (string, string) -> groupByKey -> session windows, gap 15 ms, grace 25 ms -> reduce(agg + \",\" + value, nulls written null; store `red`) -> toStream -> `out`.",
            topics("> in s s", "< out x s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(15), ms(25)))
                    .reduce((a, v) -> t(a) + "," + t(v), ses("red", S)).toStream().to("out");
            },
            "in a p 0; in a q 30; in a r 15; in a s 31; in a - 33; in b - 34; in b u 35; in a v 60; in a w 46; in a y 5; in a z 120; in a 1 90",
            feed().values("in", letters()));
        add("session-aggregate-null", "Windows",
            "Stream `in` (string, string) -> groupByKey -> session windows, gap 20 ms, grace 40 ms -> aggregate(init \"\", null when the value is DEL, else agg + value, merger a + \"&\" + b; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out x s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(40)))
                    .aggregate(() -> "", (k, v, a) -> "DEL".equals(v) ? null : a + t(v), (k, p, q) -> p + "&" + q, ses("agg", S))
                    .toStream().to("out");
            },
            "in a x 0; in a y 10; in a DEL 20; in a z 25; in a w 60; in a DEL 40; in a v 41; in b DEL 50; in b q 50",
            feed().values("in", oneOf("x", "y", "z", "DEL")));
        add("session-smallest-gap", "Windows",
            "Stream `in` (string, string) -> groupByKey -> session windows, gap 1 ms, grace 10 ms -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out x l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(1), ms(10)))
                    .count(ses("counts", L)).toStream().to("out");
            },
            "in a x 5; in a x 5; in a x 6; in a x 8; in a x 7; in a x 20; in a x 10; in a x 9; in b x 8",
            feed().step(4).late(25, 12).values("in", letters()));
        add("unlimited-count", "Windows",
            "Stream `in` (string, string) -> groupByKey -> unlimited windows starting at 50 -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(UnlimitedWindows.of().startOn(Instant.ofEpochMilli(50)))
                    .count(win("counts", L)).toStream().map((k, v) -> KeyValue.pair(k.key() + "@" + k.window().start(), t(v)))
                    .to("out", Produced.with(S, S));
            },
            "in a x 10; in a y 50; in a z 70; in b x 49; in a - 60; in - x 80; in a w 51",
            feed().values("in", letters()));
        add("tumbling-big-times", "Windows",
            "Stream `in` (string, string), times around 1_700_000_000_000, up to hours apart -> groupByKey -> tumbling 60 s, grace 10 s -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out w60000 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(60_000), ms(10_000)))
                    .count(win("counts", L)).toStream().to("out");
            },
            "in a x 1700000000000; in a y 1700000030000; in b z 1700000065000; in a w 1700000020000; in a v 1700003600000; in a u 1700003541000; in a t 1700003000000; in b s 1700003605000; in a r 1700010800000; in a q 1700000000001",
            big().values("in", letters()));
        add("tumbling-long-retention-big-times", "Windows",
            "Stream `in` (string, string), big times -> groupByKey -> tumbling 30 s, grace 10 min -> aggregate(agg + \".\" + value; store `agg`, retention 1 h) -> toStream -> `out`.",
            topics("> in s s", "< out w30000 s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(30_000), ms(600_000)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + t(v), win("agg", S).withRetention(ms(3_600_000)))
                    .toStream().to("out");
            },
            "in a x 1700000000000; in a y 1700000500000; in a z 1700000010000; in a w 1700004000000; in a v 1700003405000; in a u 1700000010000; in b t 1700007300000; in a s 1700007000000",
            big().values("in", letters()));
        add("hopping-long-retention", "Windows",
            "Stream `in` (string, string) -> groupByKey -> hopping 40 ms by 10 ms, grace 60 ms -> count(store `counts`, retention 300 ms) -> toStream -> `out`.",
            topics("> in s s", "< out w40 l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey()
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(60)).advanceBy(ms(10)))
                    .count(win("counts", L).withRetention(ms(300))).toStream().to("out");
            },
            "in a x 5; in a y 35; in a z 100; in a w 20; in b v 300; in a u 240; in a t 200",
            feed().length(16, 22).late(25, 120).values("in", letters()));
        add("sliding-big-times", "Windows",
            "Stream `in` (string, string), big times -> groupByKey -> sliding windows, difference 30 s, grace 2 min -> aggregate(agg + \".\" + value; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out w30000 s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(30_000), ms(120_000)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, win("agg", S)).toStream().to("out");
            },
            "in a x 1700000000000; in a y 1700000020000; in a z 1700000100000; in a w 1700000080000; in a v 1700000010000; in a u 1700003600000; in a t 1700003500000; in a s 1700000100000; in b r 1700003590000; in b q 1700003480000",
            big().length(21, 27).values("in", letters()));
        add("session-big-times", "Windows",
            "Stream `in` (string, string), big times -> groupByKey -> session windows, gap 1 min, grace 5 min -> aggregate(agg + \".\" + value, merger \"(\" + a + \"&\" + b + \")\"; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out x s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(60_000), ms(300_000)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + t(v), (k, p, q) -> "(" + p + "&" + q + ")", ses("agg", S))
                    .toStream().to("out");
            },
            "in a x 1700000000000; in a y 1700000120000; in a z 1700000060000; in b w 1700000300000; in a v 1700000180000; in a u 1700003600000; in a t 1700003300000; in a s 1700003250000; in a r 1700003240000; in b q 1700000300000",
            big().values("in", letters()));
        add("session-long-retention", "Windows",
            "Stream `in` (string, string), big times -> groupByKey -> session windows, gap 30 s, grace 0 -> count(store `counts`, retention 1 h) -> toStream -> `out`.",
            topics("> in s s", "< out x l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapWithNoGrace(ms(30_000)))
                    .count(ses("counts", L).withRetention(ms(3_600_000))).toStream().to("out");
            },
            "in a x 1700000000000; in a y 1700000030000; in a z 1700000090000; in a w 1700000060000; in a v 1700000030000; in b u 1700001000000; in b t 1700003700000; in a s 1700003699999",
            big().values("in", letters()));
        add("window-start-select-key-count", "Windows",
            "Stream `in` (string, string) -> groupByKey -> tumbling 50 ms, grace 20 ms -> count(store `counts`) -> toStream -> selectKey(key + \"@\" + window start) -> groupByKey(named `by-window`; string, long) -> reduce(agg + v; store `sums`) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).count(win("counts", L))
                    .toStream().selectKey((k, v) -> k.key() + "@" + k.window().start())
                    .groupByKey(Grouped.with("by-window", S, L)).reduce(Long::sum, kv("sums", L)).toStream().to("out");
            },
            "in a x 0; in a y 10; in b z 60; in a w 30; in a v 120; in a u 40; in - u 130; in a - 140",
            feed().values("in", letters()));
        add("window-start-regroup", "Windows",
            "Stream `in` (string, string) -> groupByKey -> hopping 40 ms by 20 ms, grace 10 ms -> count(no name) -> toStream -> map((window start, key + \"=\" + count)) -> groupByKey(string, string; no name) -> aggregate(init \"\", agg + \";\" + v; no name) -> toStream -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(10)).advanceBy(ms(20))).count()
                    .toStream().map((k, v) -> KeyValue.pair("" + k.window().start(), k.key() + "=" + v))
                    .groupByKey(Grouped.with(S, S)).aggregate(() -> "", (k, v, a) -> a + ";" + v).toStream().to("out");
            },
            "in a x 0; in b y 10; in a z 45; in a w 30; in c v 90",
            feed().length(18, 24).values("in", letters()));
        add("windowed-table-group-by", "Windows",
            "Stream `in` (string, string) -> groupByKey -> hopping 60 ms by 30 ms, grace 20 ms -> count(store `counts`) -> groupBy((window, n) -> (key, n); named `again`; string, long) -> reduce(add a + v, subtract a - v; store `total`) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(60), ms(20)).advanceBy(ms(30)))
                    .count(win("counts", L)).groupBy((w, n) -> KeyValue.pair(w.key(), n), Grouped.with("again", S, L))
                    .reduce(Long::sum, (a, v) -> a - v, kv("total", L)).toStream().to("out");
            },
            "in a x 0; in a y 10; in a z 35; in b w 100; in a v 70; in a u 15; in a - 110",
            feed().length(20, 24).values("in", letters()));
        add("session-table-group-by", "Windows",
            "Stream `in` (string, string) -> groupByKey -> session windows, gap 20 ms, grace 30 ms -> count(store `counts`) -> groupBy((window, n) -> (\"n\" + n, key); named `by-count`) -> aggregate(init \"\", add agg + \"+\" + v, subtract agg + \"-\" + v; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(30)))
                    .count(ses("counts", L)).groupBy((w, n) -> KeyValue.pair("n" + n, w.key()), Grouped.with("by-count", S, S))
                    .aggregate(() -> "", (k, v, a) -> a + "+" + v, (k, v, a) -> a + "-" + v, kv("agg", S)).toStream().to("out");
            },
            "in a x 0; in b y 5; in a z 40; in a w 20; in a v 100; in b u 70; in b q 24",
            feed().length(20, 24).values("in", letters()));
        add("two-windows-one-group", "Windows",
            "Stream `in` (string, string) -> groupByKey: on the one grouped stream (1) tumbling 50 ms no grace -> count(store `t`) -> toStream -> `tumbling`; (2) session gap 15 ms no grace -> count(store `s`) -> toStream -> `session`; (3) count(store `all`) -> toStream -> `plain`.",
            topics("> in s s", "< plain s l", "< session x l", "< tumbling w50 l"), Map.of(), (b, x) -> {
                var g = b.stream("in", SS).groupByKey();
                g.windowedBy(TimeWindows.ofSizeWithNoGrace(ms(50))).count(win("t", L)).toStream().to("tumbling");
                g.windowedBy(SessionWindows.ofInactivityGapWithNoGrace(ms(15))).count(ses("s", L)).toStream().to("session");
                g.count(kv("all", L)).toStream().to("plain");
            },
            "in a x 0; in a y 15; in b z 60; in a w 50; in a v 40; in - q 61; in a - 62",
            feed().length(16, 22).values("in", letters()));
        add("two-aggregations-repartitioned", "Windows",
            "Stream `in` (string, string) -> groupBy(value; named `by-value`): on the one grouped stream (1) count(store `c`) -> toStream -> `counts`; (2) tumbling 40 ms, grace 10 ms -> reduce(agg + v; store `r`) -> toStream -> `reduced`.",
            topics("> in s s", "< counts s l", "< reduced w40 s"), Map.of(), (b, x) -> {
                var g = b.stream("in", SS).groupBy((k, v) -> v, Grouped.with("by-value", S, S));
                g.count(kv("c", L)).toStream().to("counts");
                g.windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(10))).reduce((a, v) -> a + v, win("r", S)).toStream().to("reduced");
            },
            "in a x 0; in b x 10; in a y 20; in a - 30; in a x 90; in a x 30",
            feed().length(18, 24).values("in", oneOf("x", "y", "z")));
        add("two-aggregations-repartitioned-unnamed", "Windows",
            "As two-aggregations-repartitioned with selectKey(value) -> groupByKey() and nothing named: (1) count -> toStream -> `counts`; (2) aggregate(init \"\", agg + v) -> toStream -> `joined`.",
            topics("> in s s", "< counts s l", "< joined s s"), Map.of(), (b, x) -> {
                var g = b.stream("in", SS).selectKey((k, v) -> v).groupByKey();
                g.count().toStream().to("counts");
                g.aggregate(() -> "", (k, v, a) -> a + v).toStream().to("joined");
            },
            "in a x 0; in b x 10; in a y 20; in a - 30; in a x 90; in a x 30",
            feed().length(18, 24).values("in", oneOf("x", "y", "z")));
        add("windowed-count-map-values-materialized", "Windows",
            "Stream `in` (string, string) -> groupByKey -> tumbling 50 ms, grace 20 ms -> count(store `counts`) -> mapValues((window, n) -> key + n; store `texts`; string) -> filter(length of v even; store `even`) -> toStream -> `out`.",
            topics("> in s s", "< out w50 s"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).count(win("counts", L))
                    .mapValues((w, n) -> w.key() + n, Materialized.<Windowed<String>, String, KeyValueStore<Bytes, byte[]>>as("texts")
                        .withKeySerde(WindowedSerdes.timeWindowedSerdeFrom(String.class, 50)).withValueSerde(S))
                    .filter((w, v) -> v.length() % 2 == 0, Materialized.<Windowed<String>, String, KeyValueStore<Bytes, byte[]>>as("even")
                        .withKeySerde(WindowedSerdes.timeWindowedSerdeFrom(String.class, 50)).withValueSerde(S))
                    .toStream().to("out");
            },
            "in a x 0; in a y 10; in b z 60; in a w 30; in a v 120",
            feed().length(20, 24).values("in", letters()));
    }
}
