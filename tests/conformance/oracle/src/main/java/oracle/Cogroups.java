package oracle;

import static oracle.Harness.ms;
import static oracle.Sketch.*;

import java.util.Map;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

/** Cogroup. */
final class Cogroups {
    private Cogroups() {}

    static void all() {
        cogroups();
    }

    private static void cogroups() {
        add("cogroup-three", "Cogroup",
            "Streams `in1`, `in2`, `in3` (string, string), each groupByKey; cogroup(agg + \"1\" + v), cogroup(agg + \"2\" + v), cogroup(null when v is DEL else agg + \"3\" + v) -> aggregate(init \"\"; no name) -> toStream -> `out`.",
            topics("> in1 s s", "> in2 s s", "> in3 s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in1", SS).groupByKey().<String>cogroup((k, v, a) -> a + "1" + v)
                    .cogroup(b.stream("in2", SS).groupByKey(), (k, v, a) -> a + "2" + v)
                    .cogroup(b.stream("in3", SS).groupByKey(), (k, v, a) -> "DEL".equals(v) ? null : a + "3" + v)
                    .aggregate(() -> "").toStream().to("out");
            },
            "in1 a x 0; in2 a y 10; in3 a z 5; in3 a DEL 20; in1 a w 7; in2 - q 8; in2 b - 9; in3 c DEL 30",
            feed().values("in3", oneOf("x", "y", "DEL")));
        add("cogroup-repartitioned", "Cogroup",
            "Streams `left` (string, string; groupBy(value's first letter; named `lgrp`)) and `right` (string, string; selectKey(value) -> groupByKey(named `rgrp`)); cogroup(agg + \".\" + v), cogroup(agg + \"/\" + v) -> aggregate(init \"\"; named `co`, store `agg`) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("left", SS).groupBy((k, v) -> v == null ? null : v.substring(0, 1), Grouped.with("lgrp", S, S))
                    .<String>cogroup((k, v, a) -> a + "." + v)
                    .cogroup(b.stream("right", SS).selectKey((k, v) -> v).groupByKey(Grouped.with("rgrp", S, S)), (k, v, a) -> a + "/" + v)
                    .aggregate(() -> "", Named.as("co"), kv("agg", S)).toStream().to("out");
            },
            "left a xy 0; right a x 10; left b - 5; right b y 7; left c yz 20; right - x 3",
            feed().values("left", oneOf("x1", "y2", "z3")).values("right", oneOf("x", "y", "z")));
        add("cogroup-repartitioned-unnamed", "Cogroup",
            "As cogroup-repartitioned, but nothing named, and `right` grouped by its own key, with a third stream `third` (groupByKey; agg + \"!\" + v).",
            topics("> left s s", "> right s s", "> third s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("left", SS).groupBy((k, v) -> v == null ? null : v.substring(0, 1))
                    .<String>cogroup((k, v, a) -> a + "." + v)
                    .cogroup(b.stream("right", SS).groupByKey(), (k, v, a) -> a + "/" + v)
                    .cogroup(b.stream("third", SS).groupByKey(), (k, v, a) -> a + "!" + v)
                    .aggregate(() -> "").toStream().to("out");
            },
            "left a xy 0; right a x 10; left b - 5; right b y 7; left c yz 20; third x q 21; right - x 3",
            feed().length(18, 24).keys("third", "x", "y").values("left", oneOf("x1", "y2", "z3")).values("right", oneOf("x", "y", "z")));
        add("cogroup-sliding", "Cogroup",
            "Streams `left` and `right` (string, string): cogroup(agg + \".\" + v), cogroup(agg + \"/\" + v) -> sliding windows, difference 15 ms, grace 20 ms -> aggregate(init \"\"; store `agg`) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out w15 s"), Map.of(), (b, x) -> {
                b.stream("left", SS).groupByKey().<String>cogroup((k, v, a) -> a + "." + v)
                    .cogroup(b.stream("right", SS).groupByKey(), (k, v, a) -> a + "/" + v)
                    .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(15), ms(20)))
                    .aggregate(() -> "", win("agg", S)).toStream().to("out");
            },
            "left a x 10; right a y 15; left a z 30; right a w 22; left a v 70; right a u 20; left a t 25; right b s 71",
            feed().length(18, 24).values("left", letters()));
        add("cogroup-hopping-named", "Cogroup",
            "Streams `left` and `right` (string, string): cogroup(agg + \".\" + v), cogroup(agg + \"/\" + v) -> hopping windows of 40 ms by 20 ms, grace 10 ms -> aggregate(init \"\"; named `co`; store `agg`, retention 300 ms) -> suppress(untilWindowCloses, unbounded) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out w40 s"), Map.of(), (b, x) -> {
                b.stream("left", SS).groupByKey().<String>cogroup((k, v, a) -> a + "." + t(v))
                    .cogroup(b.stream("right", SS).groupByKey(), (k, v, a) -> a + "/" + t(v))
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(10)).advanceBy(ms(20)))
                    .aggregate(() -> "", Named.as("co"), win("agg", S).withRetention(ms(300)))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "left a x 10; right a y 15; left a z 30; right a w 22; left a v 70; right a u 20; left a t 25; right b s 171",
            feed().values("left", letters()));
        add("cogroup-cached-session", "Cogroup",
            "Cache of 10 MB. Streams `left` and `right` (string, string): cogroup(agg + \".\" + v), cogroup(agg + \"/\" + v) -> session windows, gap 20 ms, grace 50 ms -> aggregate(init \"\", merger \"(\" + a + \"&\" + b + \")\"; store `agg`) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out x s"), cache(10485760), (b, x) -> {
                b.stream("left", SS).groupByKey().<String>cogroup((k, v, a) -> a + "." + t(v))
                    .cogroup(b.stream("right", SS).groupByKey(), (k, v, a) -> a + "/" + t(v))
                    .windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(50)))
                    .aggregate(() -> "", (k, p, q) -> "(" + p + "&" + q + ")", ses("agg", S)).toStream().to("out");
            },
            "left a x 10; right a y 45; left a z 30; right a w 22; left a v 120; right a u 90; left a t 25; right b s 171",
            feed().length(18, 24).values("left", letters()));
    }
}
