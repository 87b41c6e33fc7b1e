package oracle;

import static oracle.Harness.ms;
import static oracle.Sketch.*;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import oracle.OwnProcessors.*;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

/** Error handlers, and timestamps. */
final class ErrorsAndTimes {
    private ErrorsAndTimes() {}

    static void all() {
        errors();
        timestamps();
    }

    private static void errors() {
        add("deserialization-continue-table", "Errors",
            "deserialization.exception.handler = LogAndContinue. Table `in` (string, long; store `tab`) -> groupBy((k, v) -> (\"all\", v); named `grp`; string, long) -> reduce(add, subtract; store `sum`) -> toStream -> `out`. Inputs with raw values that are not 8 bytes.",
            topics("> in s l", "< out s l"), Map.of("deserialization.exception.handler", "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler"), (b, x) -> {
                b.table("in", SL, kv("tab", L)).groupBy((k, v) -> KeyValue.pair("all", v), Grouped.with("grp", S, L))
                    .reduce(Long::sum, (a, v) -> a - v, kv("sum", L)).toStream().to("out");
            },
            "in a 1 0; in a !xyz 5; in b 2 6; in b - 7; in - !q 8; in a ! 9; in a 4 3",
            feed().values("in", longs(9)));
        add("deserialization-fail", "Errors",
            "Stream `in` (string, long) -> mapValues(v + 1) -> `out`; the default handler: the first raw value that is not 8 bytes long ends the trace.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SL).mapValues(v -> v == null ? null : v + 1).to("out", Produced.with(S, L));
            },
            "in a 1 0; in b - 7; in a 4 3; in a !bad 9",
            feed().length(21, 28).values("in", longs(9)));
        add("continue-map-flat-map", "Errors",
            "processing.exception.handler = LogAndContinue. Stream `in` (string, long) -> map((key + value % 3, 12 / (value - 3))) -> flatMap(value / (value - 4) records, i.e. fails for 4: (key + i, value + i) for i < value % 4) -> filter(100 / value > 5) -> selectKey(key + \"!\") -> `out`. Null values fail in map.",
            topics("> in s l", "< out s l"), CONTINUE, (b, x) -> {
                b.stream("in", SL).map((k, v) -> KeyValue.pair(t(k) + v % 3, 12 / (v - 3)))
                    .flatMap((k, v) -> {
                        if (v == 4) throw new IllegalStateException("four");
                        final List<KeyValue<String, Long>> all = new ArrayList<>();
                        for (long i = 0; i < Math.floorMod(v, 4); i++) all.add(KeyValue.pair(k + i, v + i));
                        return all;
                    }).filter((k, v) -> 100 / v > 5).selectKey((k, v) -> k + "!").to("out", Produced.with(S, L));
            },
            "in a 4 0; in a 3 1; in a 6 2; in b - 3; in a 5 4; in a 15 5; in - 9 6; in a 7 7",
            feed().values("in", longs(20)));
        add("continue-aggregate", "Errors",
            "processing.exception.handler = LogAndContinue. Stream `in` (string, long) -> groupByKey: (1) aggregate(init 0, agg + 60 / v; store `agg`) -> toStream -> `out`; (2) reduce(a + v, fails when a + v is divisible by 5; store `red`) -> toStream -> mapValues(60 / (v - 7)) -> `red`.",
            topics("> in s l", "< out s l", "< red s l"), CONTINUE, (b, x) -> {
                var g = b.stream("in", SL).groupByKey(Grouped.with(S, L));
                g.aggregate(() -> 0L, (k, v, a) -> a + 60 / v, kv("agg", L)).toStream().to("out");
                g.reduce((a, v) -> { if ((a + v) % 5 == 0) throw new IllegalStateException("five"); return a + v; }, kv("red", L))
                    .toStream().mapValues(v -> Math.floorDiv(60L, v - 7)).to("red", Produced.with(S, L));
            },
            "in a 1 0; in a 0 1; in a 4 2; in a 6 3; in b - 4; in - 5 5; in b 7 6; in b 0 7",
            feed().values("in", longs(9)));
        add("continue-windowed", "Errors",
            "processing.exception.handler = LogAndContinue. Stream `in` (string, long) -> groupByKey: (1) hopping 40 ms by 20 ms, grace 20 ms -> aggregate(init 0, fails when agg + v is divisible by 4, else agg + v; store `hop`) -> toStream -> `hop`; (2) sliding windows, difference 10 ms, grace 20 ms -> the same aggregator; store `sli` -> toStream -> `sli`; (3) session windows, gap 10 ms, grace 20 ms -> the same aggregator, merger fails when a + b is divisible by 3, else a + b; store `ses` -> toStream -> `ses`. Null values fail.",
            topics("> in s l", "< hop w40 l", "< ses x l", "< sli w10 l"), CONTINUE, (b, x) -> {
                final Aggregator<String, Long, Long> four = (k, v, a) -> {
                    if ((a + v) % 4 == 0) throw new IllegalStateException("four");
                    return a + v;
                };
                var g = b.stream("in", SL).groupByKey(Grouped.with(S, L));
                g.windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(20)).advanceBy(ms(20))).aggregate(() -> 0L, four, win("hop", L)).toStream().to("hop");
                g.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(10), ms(20))).aggregate(() -> 0L, four, win("sli", L)).toStream().to("sli");
                g.windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(10), ms(20))).aggregate(() -> 0L, four, (k, p, q) -> {
                    if ((p + q) % 3 == 0) throw new IllegalStateException("three");
                    return p + q;
                }, ses("ses", L)).toStream().to("ses");
            },
            "in a 1 20; in a 3 30; in a 2 41; in a 5 35; in a 4 60; in a - 61; in a 3 50; in b 1 80; in b 5 100; in b 3 90; in b 2 70",
            feed().length(16, 22).values("in", longs(9)));
        add("continue-joiners", "Errors",
            "processing.exception.handler = LogAndContinue; outer join emit interval 0. Stream `stream`, table `table` (string, long; store `tab`), table `other` (string, long; store `oth`): (1) stream.leftJoin(table, 60 / (s - t), t null as 0) -> `st`; (2) table.join(other, 60 / (l - r)) -> toStream -> `tt`; (3) stream.leftJoin(stream.filter(v even), 60 / (l - r) with r null as 2, difference 10 ms, grace 5 ms; named and stored `j`) -> `ss`. Division is floor division.",
            topics("> stream s l", "> table s l", "> other s l", "< ss s l", "< st s l", "< tt s l"), plus(CONTINUE, JOIN0), (b, x) -> {
                var s = b.stream("stream", SL);
                var table = b.table("table", SL, kv("tab", L));
                var other = b.table("other", SL, kv("oth", L));
                s.leftJoin(table, (l, r) -> Math.floorDiv(60L, l - (r == null ? 0 : r))).to("st", Produced.with(S, L));
                table.join(other, (l, r) -> Math.floorDiv(60L, l - r)).toStream().to("tt", Produced.with(S, L));
                s.leftJoin(s.filter((k, v) -> v != null && v % 2 == 0), (l, r) -> Math.floorDiv(60L, l - (r == null ? 2 : r)),
                    JoinWindows.ofTimeDifferenceAndGrace(ms(10), ms(5)), StreamJoined.with(S, L, L).withName("j").withStoreName("j"))
                    .to("ss", Produced.with(S, L));
            },
            "stream a 0 0; stream a 3 5; table a 3 6; stream a 3 7; other a 3 8; other a 5 9; stream b 2 20; stream a 9 40; table a - 41; stream - 4 42; stream a - 43; stream b 7 80",
            feed().values("stream", longs(6)).values("table", longs(6)).values("other", longs(6)));
        add("continue-punctuator", "Errors",
            "processing.exception.handler = LogAndContinue. Stream `in` (string, string) -> process: counts firings of a stream-time punctuator every 20 ms and a wall-clock one every 50 ms; each logs \"s<n> <ts>\" / \"w<n> <ts>\", forwards (\"s\" or \"w\", \"a<n>\"), raises when n is divisible by 3, forwards (.., \"b<n>\"); process raises for the value \"boom\", else forwards the record -> mapValues(raises for \"b4\", else v + \"!\") -> `out`.",
            topics("> in s s", "< out s s"), CONTINUE, (b, x) -> {
                b.stream("in", SS).process(() -> new Boom(x)).mapValues(v -> {
                    if ("b4".equals(v)) throw new IllegalStateException("b4");
                    return v + "!";
                }).to("out", Produced.with(S, S));
            },
            "in a x 5; in a boom 25; in a y 41; in a z 62; in a w 85; in a v 105; + 50; + 50; + 50; + 50; in a boom 300; in - u 301; in a - 302",
            feed().advances(15, 120).values("in", oneOf("x", "y", "boom")));
        add("continue-nested", "Errors",
            "processing.exception.handler = LogAndContinue. Stream `in` (string, long) -> process named `fan` (forwards value, value + 1, value + 2, in this order, and logs \"fan done\" at its end) -> peek(log \"peek v\") -> mapValues(60 / (v - 5)) named `div` -> `out`; a second child of `fan`: process named `deep` (forwards 10 / (v - 7) to its child mapValues(v * 2), logs \"deep done\") -> `deep`. Division is floor division; a null value fails in `fan`.",
            topics("> in s l", "< deep s l", "< out s l"), CONTINUE, (b, x) -> {
                var fan = b.stream("in", SL).process(() -> new Fan(x), Named.as("fan"));
                fan.peek((k, v) -> x.add("peek " + v)).mapValues(v -> Math.floorDiv(60L, v - 5), Named.as("div")).to("out", Produced.with(S, L));
                fan.process(() -> new Deep(x), Named.as("deep")).mapValues(v -> v * 2).to("deep", Produced.with(S, L));
            },
            "in a 1 0; in a 4 1; in a 3 2; in a 5 3; in b - 4; in - 6 5; in a 7 6",
            feed().length(12, 16).values("in", longs(9)));
        add("continue-table", "Errors",
            "processing.exception.handler = LogAndContinue. Table `in` (string, long; store `tab`) -> filter(60 / v > 5) -> mapValues(60 / (v - 4); store `map`; long) -> toStream -> `out`; table -> groupBy((\"g\" + 6 / v, v); named `grp`; string, long) -> aggregate(init 0, add (fails when v is 3), subtract (fails when v is 2); store `agg`) -> toStream -> `agg`.",
            topics("> in s l", "< agg s l", "< out s l"), CONTINUE, (b, x) -> {
                var table = b.table("in", SL, kv("tab", L));
                table.filter((k, v) -> 60 / v > 5).mapValues(v -> Math.floorDiv(60L, v - 4), kv("map", L)).toStream().to("out");
                table.groupBy((k, v) -> KeyValue.pair("g" + 6 / v, v), Grouped.with("grp", S, L))
                    .aggregate(() -> 0L, (k, v, a) -> { if (v == 3) throw new IllegalStateException("three"); return a + v; },
                        (k, v, a) -> { if (v == 2) throw new IllegalStateException("two"); return a - v; }, kv("agg", L)).toStream().to("agg");
            },
            "in a 1 0; in a 0 1; in a 4 2; in a 6 3; in b - 4; in - 5 5; in b 3 6; in b 2 7; in b 5 8; in c 2 9; in c 2 10; in a - 11",
            feed().values("in", longs(9)));
        add("continue-branch-merge-foreach", "Errors",
            "processing.exception.handler = LogAndContinue. Stream `in` (string, long) -> split: branch 6 / v > 2; branch v even; default; merged again (first with second, then third) -> peek(raises when v is 5) -> `out`; from the source also foreach(raises when v is 4, logs \"each v\").",
            topics("> in s l", "< out s l"), CONTINUE, (b, x) -> {
                var s = b.stream("in", SL);
                var map = s.split(Named.as("b-")).branch((k, v) -> 6 / v > 2, Branched.as("x")).branch((k, v) -> v % 2 == 0, Branched.as("y")).defaultBranch(Branched.as("z"));
                map.get("b-x").merge(map.get("b-y")).merge(map.get("b-z")).peek((k, v) -> { if (v == 5) throw new IllegalStateException("five"); }).to("out", Produced.with(S, L));
                s.foreach((k, v) -> { if (v == 4) throw new IllegalStateException("four"); x.add("each " + v); });
            },
            "in a 1 0; in a 0 1; in a 4 2; in a 5 3; in b - 4; in - 6 5; in a 7 6",
            feed().values("in", longs(9)));
        add("processing-fail-aggregate", "Errors",
            "The default processing handler. Stream `in` (string, long) -> groupByKey -> aggregate(init 0, raises when v is 13, else agg + v; store `agg`) -> toStream -> `out`: the trace ends with the first 13.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SL).groupByKey(Grouped.with(S, L)).aggregate(() -> 0L, (k, v, a) -> {
                    if (v == 13) throw new IllegalStateException("13");
                    return a + v;
                }, kv("agg", L)).toStream().to("out");
            },
            "in a 1 0; in a 2 1; in b - 2; in a 13 3",
            feed().values("in", longs(20)));
        add("processing-fail-second-child", "Errors",
            "processing.exception.handler = LogAndFail. Stream `in` (string, long): first child -> peek(log \"first v\") -> `first`; second child -> mapValues(60 / v) -> `second`: a 0 ends the trace, the first child's record is out.",
            topics("> in s l", "< first s l", "< second s l"), Map.of("processing.exception.handler", "org.apache.kafka.streams.errors.LogAndFailProcessingExceptionHandler"), (b, x) -> {
                var s = b.stream("in", SL);
                s.peek((k, v) -> x.add("first " + t(v))).to("first");
                s.mapValues(v -> v == null ? null : 60 / v).to("second", Produced.with(S, L));
            },
            "in a 1 0; in a 2 1; in b - 2; in a 0 3",
            feed().values("in", longs(20)));
        add("processing-fail-punctuator", "Errors",
            "The default handler. Stream `in` (string, string) -> process as in continue-punctuator (without the mapValues) -> `out`: the third firing or a boom ends the trace.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).process(() -> new Boom(x)).to("out", Produced.with(S, S));
            },
            "in a x 5; in a y 41; + 50; + 50; + 49; + 1; in a z 62",
            feed().advances(15, 120).values("in", letters()));
    }

    private static void timestamps() {
        add("extractor-table", "Timestamps",
            "Table `in` (string, long; store `tab`) whose timestamp is 10 * value, the record's own for a null value, -1 (dropped) for 7 -> groupBy((\"g\" + v % 2, v); named `grp`; string, long) -> aggregate(init 0, add, subtract; store `sum`) -> toStream -> `out`.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                b.table("in", Consumed.with(S, L).withTimestampExtractor((r, p) -> r.value() == null ? r.timestamp() : (Long) r.value() == 7 ? -1 : 10 * (Long) r.value()), kv("tab", L))
                    .groupBy((k, v) -> KeyValue.pair("g" + v % 2, v), Grouped.with("grp", S, L))
                    .aggregate(() -> 0L, (k, v, a) -> a + v, (k, v, a) -> a - v, kv("sum", L)).toStream().to("out");
            },
            "in a 3 100; in b 7 5; in a 1 6; in a - 500; in b 2 7; in a 5 8",
            feed().values("in", longs(9)));
        add("extractor-repartition", "Timestamps",
            "Stream `in` (string, long) whose timestamp is 5 * value (the partition time for a null value) -> selectKey(\"k\" + value % 2, null value: \"none\") -> groupByKey(named `grp`; string, long) -> tumbling 30 ms, grace 10 ms -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s l", "< out w30 l"), Map.of(), (b, x) -> {
                b.stream("in", Consumed.with(S, L).withTimestampExtractor((r, p) -> r.value() == null ? p : 5 * (Long) r.value()))
                    .selectKey((k, v) -> v == null ? "none" : "k" + v % 2).groupByKey(Grouped.with("grp", S, L))
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(30), ms(10))).count(win("counts", L)).toStream().to("out");
            },
            "in a 3 100; in b 7 5; in a 1 6; in a - 500; in b 20 7; in a 5 8; in a - 9; in c 11 10",
            feed().values("in", (r, n) -> (long) (n + r.nextInt(15))));
        add("extractor-two-topics", "Timestamps",
            "One stream over `in1` and `in2` (string, string), UsePartitionTimeOnInvalidTimestamp after: the number behind \":\" in the value, else -1 -> process: forward value + \"@\" + timestamp + \"/\" + stream time -> `out`. Partition time is kept for each topic.",
            topics("> in1 s s", "> in2 s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream(List.of("in1", "in2"), SS.withTimestampExtractor(new PartitionTime())).process(Stamp::new).to("out", Produced.with(S, S));
            },
            "in1 a x:10 0; in2 a y:500 1; in1 a z 2; in2 b w 3; in1 b v:7 4; in1 b u 5; in2 - t:100 6; in2 - s 7",
            feed().nulls(3, 0).length(18, 24).values("in1", (r, n) -> n < 4 || r.nextInt(3) > 0 ? "x" + n + ":" + r.nextInt(200) : "x" + n)
                .values("in2", (r, n) -> n < 40 || r.nextInt(3) > 0 ? "y" + n + ":" + r.nextInt(500) : "y" + n));
        add("extractor-partition-time-fail", "Timestamps",
            "As extractor-two-topics; the first record of `in1` is invalid: error.",
            topics("> in1 s s", "> in2 s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream(List.of("in1", "in2"), SS.withTimestampExtractor(new PartitionTime())).process(Stamp::new).to("out", Produced.with(S, S));
            },
            "in2 a x:10 0; in2 a y 1; in1 a z 2",
            feed().nulls(3, 0).weight("in2", 5).length(18, 24).values("in1", (r, n) -> "x" + n).values("in2", (r, n) -> "y" + n + ":" + r.nextInt(500)));
        add("extractor-sees-partition-time", "Timestamps",
            "Stream `in` (string, long) whose timestamp is partition time + value % 5, the record's own on the first record (partition time -1); stream `other` (string, long) with its own timestamps; both -> mapValues(v) -> merge -> process: forward (key, timestamp + \"/\" + stream time) -> `out`.",
            topics("> in s l", "> other s l", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", Consumed.with(S, L).withTimestampExtractor((r, p) -> p < 0 ? r.timestamp() : p + (r.value() == null ? 0 : (Long) r.value() % 5)))
                    .merge(b.stream("other", SL)).process(StampLong::new).to("out", Produced.with(S, S));
            },
            "in a 3 100; in b 7 5; other a 1 6; in a - 500; other b 2 400; in a 5 8; in a 4 9; other b 3 100",
            feed().values("in", longs(20)));
        add("extractor-punctuate", "Timestamps",
            "Stream `in` (string, long) whose timestamp is 10 * value (dropped when the value is null: -1) -> process: every 50 ms of stream time logs \"p <ts>\"; forwards (key, stream time as text) -> `out`.",
            topics("> in s l", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", Consumed.with(S, L).withTimestampExtractor((r, p) -> r.value() == null ? -1 : 10 * (Long) r.value())).process(() -> new Ticks(x)).to("out", Produced.with(S, S));
            },
            "in a 3 100; in b 7 5; in a 1 6; in a - 500; in b 20 7; in a 15 8; in a 26 9",
            feed().values("in", (r, n) -> (long) (n + r.nextInt(10))));
        add("forwarded-timestamps", "Timestamps",
            "Stream `in` (string, long) -> process: forwards the record with timestamp 1000 - ts (at least 0) -> groupByKey(named `grp`; string, long) -> tumbling 100 ms, grace 100 ms -> count(store `counts`) -> toStream -> `out`; stream time of the windows goes by the changed timestamps.",
            topics("> in s l", "< out w100 l"), Map.of(), (b, x) -> {
                b.stream("in", SL).process(Backwards::new).groupByKey(Grouped.with("grp", S, L))
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(100), ms(100))).count(win("counts", L)).toStream().to("out");
            },
            "in a 3 100; in b 7 5; in a 1 600; in a - 500; in b 20 950; in a 15 990; in a 26 2000",
            feed().step(25).late(30, 200).values("in", longs(9)));
    }
}
