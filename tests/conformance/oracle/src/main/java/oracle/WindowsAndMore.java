package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.SESSION;
import static oracle.Harness.STRING;
import static oracle.Harness.ms;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

/**
 * Windows, suppress, emit on close, the record cache, cogroup, processors, errors, timestamps, stateless and mixed
 * topologies. Lambdas take (k, v); t() writes null as the text null. In scenarios "topic key value ts" is an input,
 * "-" a null, "!text" a raw value, "+ ms" an advance of the wall clock.
 */
public final class WindowsAndMore implements Harness.Area {
    private static final Serde<String> S = Serdes.String();
    private static final Serde<Long> L = Serdes.Long();
    private static final Consumed<String, String> SS = Consumed.with(S, S);
    private static final Consumed<String, Long> SL = Consumed.with(S, L);
    private static final Map<String, Object> EMIT0 = Map.of("__emit.interval.ms.kstreams.windowed.aggregation__", 0);
    private static final Map<String, Object> JOIN0 =
        Map.of("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0);
    private static final Map<String, Object> CONTINUE = Map.of(
        "processing.exception.handler", "org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler");

    private static final Map<String, Object> OPTIMIZED = Map.of("topology.optimization", "all");

    private static Harness.Registry registry;
    private static final Map<String, Harness.Definition> DEFINITIONS = new HashMap<>();

    @Override
    public void register(final Harness.Registry given) {
        registry = given;
        windows();
        suppress();
        emitClose();
        cached();
        cogroups();
        processors();
        errors();
        timestamps();
        stateless();
        mixed();
        further();
    }

    private static Harness.Definition definition(final String name) {
        return DEFINITIONS.get(name);
    }

    private static void add(
        final String name, final String group, final String description, final String[] topics,
        final Map<String, Object> config, final Harness.Dsl dsl, final String scenario, final Inputs inputs) {
        final Harness.Definition made = registry.add(name, group, description);
        DEFINITIONS.put(name, made);
        final Map<String, Harness.Type> values = new HashMap<>();
        for (final String text : topics) {
            final String[] parts = text.split(" ");
            final Harness.Type value = parts[3].equals("l") ? LONG : STRING;
            values.put(parts[1], value);
            switch (parts[0]) {
                case ">" -> made.source(parts[1], type(parts[2]), value);
                case "<" -> made.sink(parts[1], type(parts[2]), value);
                default -> made.both(parts[1], type(parts[2]), value);
            }
        }
        config.forEach(made::config);
        if (dsl != null) made.dsl(dsl);
        final List<Harness.Step> steps = new ArrayList<>();
        for (final String step : scenario.split("; ")) {
            final String[] parts = step.split(" ");
            if (parts[0].equals("+")) {
                steps.add(Harness.advance(Long.parseLong(parts[1])));
                continue;
            }
            final String key = parts[1].equals("-") ? null : parts[1];
            final long ts = Long.parseLong(parts[3]);
            if (parts[2].startsWith("!")) {
                steps.add(Harness.raw(parts[0], key, parts[2].substring(1).getBytes(StandardCharsets.UTF_8), ts));
            } else {
                final Object value = parts[2].equals("-") ? null
                    : values.get(parts[0]) == LONG ? (Object) Long.valueOf(parts[2]) : parts[2];
                steps.add(Harness.in(parts[0], key, value, ts));
            }
        }
        made.scenario(steps.toArray(Harness.Step[]::new));
        made.random(inputs);
    }

    private static Harness.Type type(final String text) {
        return switch (text.charAt(0)) {
            case 'w' -> Harness.timeWindowed(Long.parseLong(text.substring(1)));
            case 'x' -> SESSION;
            case 'l' -> LONG;
            default -> STRING;
        };
    }

    private static String[] topics(final String... topics) {
        return topics;
    }

    private static Map<String, Object> cache(final int bytes) {
        return Map.of("statestore.cache.max.bytes", bytes);
    }

    private static Map<String, Object> plus(final Map<String, Object> a, final Map<String, Object> b) {
        final Map<String, Object> both = new HashMap<>(a);
        both.putAll(b);
        return both;
    }

    private static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> kv(final String name, final Serde<V> value) {
        return Materialized.<String, V, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(S).withValueSerde(value);
    }

    private static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> win(final String name, final Serde<V> value) {
        return Materialized.<String, V, WindowStore<Bytes, byte[]>>as(name).withKeySerde(S).withValueSerde(value);
    }

    private static <V> Materialized<String, V, SessionStore<Bytes, byte[]>> ses(final String name, final Serde<V> value) {
        return Materialized.<String, V, SessionStore<Bytes, byte[]>>as(name).withKeySerde(S).withValueSerde(value);
    }

    private static String t(final Object value) {
        return value == null ? "null" : value.toString();
    }

    private static List<String> words(final String value) {
        return value == null ? List.of() : List.of(value.split("_"));
    }

    /** The stream `in` with each word i of its values sent on at timestamp + 20 * i. */
    private static KStream<String, String> spread(final StreamsBuilder b) {
        return b.stream("in", SS).processValues(Spread::new);
    }

    private static Inputs feed() {
        return Inputs.of().keys("in", "a", "b", "c").length(21, 28).advances(3, 1500);
    }

    /** Times hours apart, so that segments expire. */
    private static Inputs big() {
        return Inputs.of().step(40_000).jumps(8, 3_600_000).late(35, 500_000).length(21, 28);
    }

    private static Inputs.Values letters() {
        return (random, n) -> "" + "xyz".charAt(random.nextInt(3)) + n;
    }

    private static Inputs.Values longs(final int most) {
        return (random, n) -> (long) random.nextInt(most + 1);
    }

    private static Inputs.Values oneOf(final String... choices) {
        return (random, n) -> choices[random.nextInt(choices.length)];
    }

    private static Inputs.Values phrase(final String... choices) {
        final String[] from = choices.length == 0 ? new String[] {"x", "y", "z", "w"} : choices;
        return (random, n) -> {
            final StringJoiner all = new StringJoiner("_");
            for (int i = random.nextInt(5); i >= 0; i--) all.add(from[random.nextInt(from.length)]);
            return all.toString();
        };
    }

    // Windows

    static void windows() {
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

    // Suppress

    static void suppress() {
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

    // Emit on window close

    static void emitClose() {
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

    // The record cache

    static void cached() {
        add("cached-count", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), cache(10485760), (b, x) -> {
                b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey().count(kv("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in b x 10; in a - 20; in a x 5; in - x_y 30",
            feed().values("in", phrase()));
        add("cached-reduce-null", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey -> reduce(null when v is DEL, else agg + v; store `red`) -> toStream -> `out`.",
            topics("> in s s", "< out s s"), cache(10485760), (b, x) -> {
                b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey().reduce((a, v) -> "DEL".equals(v) ? null : a + v, kv("red", S)).toStream().to("out");
            },
            "in a x_DEL 0; in a x 10; in a DEL 20; in a DEL_DEL 25; in a y_DEL_z 30; in a DEL 31; in b DEL 32",
            feed().values("in", phrase("x", "y", "DEL")));
        add("cached-tumbling", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> process values (each word i of the value, split at _, is forwarded with timestamp + 20 * i) -> groupByKey -> tumbling 50 ms, grace 30 ms -> aggregate(agg + \".\" + v; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out w50 s"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(30)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, win("agg", S)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45",
            feed().length(16, 22).values("in", phrase()));
        add("cached-hopping", "Record cache",
            "Cache of 10 MB. As cached-tumbling with hopping windows of 60 ms by 20 ms, grace 20 ms -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out w60 l"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(60), ms(20)).advanceBy(ms(20)))
                    .count(win("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45",
            feed().length(16, 22).values("in", phrase()));
        add("cached-session", "Record cache",
            "Cache of 10 MB. As cached-tumbling with session windows of gap 15 ms, grace 60 ms -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out x l"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(15), ms(60)))
                    .count(ses("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 47; in a q 130; in a r_s_t 95",
            feed().length(16, 22).values("in", phrase()));
        add("cached-session-aggregate", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> groupByKey -> session windows of gap 20 ms, grace 40 ms -> aggregate(agg + \".\" + v, merger \"(\" + a + \"&\" + b + \")\"; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out x s"), cache(10485760), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(40)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + t(v), (k, p, q) -> "(" + p + "&" + q + ")", ses("agg", S)).toStream().to("out");
            },
            "in a x 0; in a y 30; in a z 15; in b w 40; in a v 80; in a u 60; in a t 50; in - q 90",
            feed().values("in", letters()));
        add("cached-sliding", "Record cache",
            "Cache of 10 MB. As cached-tumbling with sliding windows, difference 30 ms, grace 30 ms -> aggregate(agg + \".\" + v; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out w30 s"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(30), ms(30)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, win("agg", S)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 95",
            feed().length(9, 13).values("in", phrase()));
        add("cached-tiny-count", "Record cache",
            "Cache of 200 bytes. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey: aggregate(agg + \".\" + v; store `agg`) -> toStream -> `out`; count(store `counts`) -> toStream -> `counts`.",
            topics("> in s s", "< counts s l", "< out s s"), cache(200), (b, x) -> {
                var g = b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey();
                g.aggregate(() -> "", (k, v, a) -> a + "." + v, kv("agg", S)).toStream().to("out");
                g.count(kv("counts", L)).toStream().to("counts");
            },
            "in a x_y_z 0; in b x_y 10; in a - 20; in a x_y_z 5; in c x_y_x_y_x_y 30; in a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_y 31; in b zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz_x_y_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz 33",
            feed().length(16, 22).values("in", phrase()));
        add("cached-tiny-hopping", "Record cache",
            "Cache of 400 bytes. As cached-hopping.",
            topics("> in s s", "< out w60 l"), cache(400), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(60), ms(20)).advanceBy(ms(20)))
                    .count(win("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45",
            feed().length(16, 22).values("in", phrase()));
        add("cached-tiny-session", "Record cache",
            "Cache of 250 bytes. As cached-session.",
            topics("> in s s", "< out x l"), cache(250), (b, x) -> {
                spread(b).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(15), ms(60)))
                    .count(ses("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 47; in a q 130; in a r_s_t 95",
            feed().length(16, 22).values("in", phrase()));
        add("cached-table-filter", "Record cache",
            "Cache of 10 MB. Table `in` (string, long; store `tab`) -> filter(v even; store `even`) -> toStream -> `out`; the table also -> toStream -> `all`.",
            topics("> in s l", "< all s l", "< out s l"), cache(10485760), (b, x) -> {
                var table = b.table("in", SL, kv("tab", L));
                table.filter((k, v) -> v % 2 == 0, kv("even", L)).toStream().to("out");
                table.toStream().to("all");
            },
            "in a 2 0; in a 3 5; in b 1 10; in b 4 3; in a - 20; in c - 21; in a 6 22; in a 6 23",
            feed().values("in", longs(10)));
        add("cached-table-join", "Record cache",
            "Cache of 10 MB. Tables `left` and `right` (string, string; stores `ltab`, `rtab`): outerJoin(left + \"+\" + right; store `joined`) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out s s"), cache(10485760), (b, x) -> {
                b.table("left", SS, kv("ltab", S)).outerJoin(b.table("right", SS, kv("rtab", S)), (l, r) -> t(l) + "+" + t(r), kv("joined", S)).toStream().to("out");
            },
            "left a x 0; right a 1 5; left a - 10; right a - 3; right b 2 20; left b y 15; right b - 30; left c - 31",
            feed().values("left", letters()).values("right", letters()));
        add("cached-table-self-join", "Record cache",
            "Cache of 10 MB. Table `in` (string, long; store `tab`): evens = filter(v even; store `even`); big = mapValues(v * 100; store `big`); evens.leftJoin(big, left + \"+\" + right) -> toStream -> `out`.",
            topics("> in s l", "< out s s"), cache(10485760), (b, x) -> {
                var table = b.table("in", SL, kv("tab", L));
                var evens = table.filter((k, v) -> v % 2 == 0, kv("even", L));
                var big = table.mapValues(v -> v * 100, kv("big", L));
                evens.leftJoin(big, (l, r) -> t(l) + "+" + t(r)).toStream().to("out", Produced.with(S, S));
            },
            "in a 2 0; in a 3 5; in b 1 10; in b 4 3; in a - 20; in c - 21; in a 6 22; in a 6 23",
            feed().values("in", longs(10)));
        add("cached-table-group-by", "Record cache",
            "Cache of 10 MB. Table `in` (string, long; store `tab`) -> groupBy((k, v) -> (\"g\" + v % 3, v); named `grp`; string, long) -> aggregate(init 0, add, subtract; store `sum`) -> mapValues(v + 1; store `plus`) -> toStream -> `out`.",
            topics("> in s l", "< out s l"), cache(10485760), (b, x) -> {
                b.table("in", SL, kv("tab", L)).groupBy((k, v) -> KeyValue.pair("g" + v % 3, v), Grouped.with("grp", S, L))
                    .aggregate(() -> 0L, (k, v, a) -> a + v, (k, v, a) -> a - v, kv("sum", L)).mapValues(v -> v + 1, kv("plus", L)).toStream().to("out");
            },
            "in a 1 0; in b 2 5; in a 4 10; in a 5 12; in b - 20; in c - 21; in a 2 15",
            feed().values("in", longs(9)));
        add("cached-cascade", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey -> count(store `counts`) -> toStream -> mapValues(v as text) -> peek(log \"peek key=value\") -> groupByKey(string, string) -> aggregate(init \"\", agg + \",\" + v; store `history`) -> toStream -> `out`; the first toStream also -> `counts`.",
            topics("> in s s", "< counts s l", "< out s s"), cache(10485760), (b, x) -> {
                var counts = b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey().count(kv("counts", L)).toStream();
                counts.mapValues(v -> "" + v).peek((k, v) -> x.add("peek " + t(k) + "=" + t(v))).groupByKey(Grouped.with(S, S))
                    .aggregate(() -> "", (k, v, a) -> a + "," + v, kv("history", S)).toStream().to("out");
                counts.to("counts");
            },
            "in a x_y_z 0; in b x 10; in a - 20; in a x 5; in - x_y 30; in a x_y 40",
            feed().length(20, 24).values("in", phrase()));
        add("cached-one-store-off", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey: count(store `loud`, caching disabled) -> toStream -> `loud`; count(store `quiet`) -> toStream -> `quiet`; tumbling 50 ms no grace count(store `loudw`, caching disabled) -> toStream -> `windows`.",
            topics("> in s s", "< loud s l", "< quiet s l", "< windows w50 l"), cache(10485760), (b, x) -> {
                var g = b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey();
                g.count(kv("loud", L).withCachingDisabled()).toStream().to("loud");
                g.count(kv("quiet", L)).toStream().to("quiet");
                g.windowedBy(TimeWindows.ofSizeWithNoGrace(ms(50))).count(win("loudw", L).withCachingDisabled()).toStream().to("windows");
            },
            "in a x_y_z 0; in b x 10; in a - 20; in a x 5; in - x_y 30; in a x_y 60",
            feed().length(13, 17).values("in", phrase()));
        add("cached-suppress", "Record cache",
            "Cache of 10 MB. As cached-tumbling (50 ms, grace 20 ms, aggregate into `agg`) -> suppress(untilWindowCloses, unbounded) -> toStream -> `out`.",
            topics("> in s s", "< out w50 s"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, win("agg", S))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45; in b x_y_z_w_v 150; in c x 400",
            feed().values("in", phrase()));
        add("cached-emit-close", "Record cache",
            "Cache of 10 MB. As cached-tumbling with EmitStrategy.onWindowClose (50 ms, grace 20 ms; store `agg`, retention 1000 ms).",
            topics("> in s s", "< out w50 s"), plus(cache(10485760), EMIT0), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).emitStrategy(EmitStrategy.onWindowClose())
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, win("agg", S).withRetention(ms(1000))).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45; in b x_y_z_w_v 150; in c x 400",
            feed().values("in", phrase()));
        add("cached-stream-table-join", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> s = flatMapValues(split at _); s -> groupByKey -> count(store `counts`) = table; s.leftJoin(table, value + \"/\" + count) -> `out`; table -> toStream -> `counts`.",
            topics("> in s s", "< counts s l", "< out s s"), cache(10485760), (b, x) -> {
                var s = b.stream("in", SS).flatMapValues(v -> words(v));
                var table = s.groupByKey().count(kv("counts", L));
                s.leftJoin(table, (v, n) -> v + "/" + t(n)).to("out", Produced.with(S, S));
                table.toStream().to("counts");
            },
            "in a x_y_z 0; in b x 10; in a - 20; in a x 5; in - x_y 30; in a x_y 60",
            feed().length(16, 22).values("in", phrase()));
        add("cached-punctuate", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> process (plain store `last`: remembers key -> value; every 50 ms of stream time and every 100 ms of wall clock forwards all rows (key, value) with the punctuation's time) -> repartition(named `re`) -> groupByKey -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), cache(10485760), (b, x) -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("last"), S, S));
                b.stream("in", SS).process(() -> new LastValues(ms(50), ms(100)), "last").repartition(Repartitioned.with(S, S).withName("re"))
                    .groupByKey(Grouped.with(S, S)).count(kv("counts", L)).toStream().to("out");
            },
            "in a x 0; in b y 10; + 100; in a z 70; + 50; + 50; in c w 500",
            feed().advances(20, 1500).length(18, 24).values("in", letters()));
    }

    // Cogroup

    static void cogroups() {
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

    // Processors

    static void processors() {
        add("processor-window-store", "Processor API",
            "Stream `in` (string, string) -> process (plain window store `win`: retention 100 ms, window size 50 ms): for a non-null key put (key, value) at the record's timestamp, then forward (key, the rows of fetch(key, ts - 40, ts + 40) as \"value@start\", joined by \",\") -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("win", ms(100), ms(50), false), S, S));
                b.stream("in", SS).process(() -> new Around("win"), "win").to("out", Produced.with(S, S));
            },
            "in a x 10; in a y 30; in b z 31; in a w 30; in a - 10; in a v 90; in a u 140; in a t 60; in a s 30",
            feed().late(25, 120).values("in", letters()));
        add("processor-window-store-duplicates", "Processor API",
            "As processor-window-store, with retained duplicates.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("win", ms(100), ms(50), true), S, S));
                b.stream("in", SS).process(() -> new Around("win"), "win").to("out", Produced.with(S, S));
            },
            "in a x 10; in a y 30; in b z 31; in a w 30; in a - 10; in a v 90; in a u 140; in a t 60; in a s 30",
            feed().step(4).late(25, 120).values("in", letters()));
        add("processor-session-store", "Processor API",
            "Stream `in` (string, string) -> process (session store `ses`, retention 500 ms): for a non-null key, over the rows of fetch(key) in order: a session whose [start, end] contains ts is removed; then put the session [ts - ts % 20, ts] with the value (nothing for a null value); forward (key, all rows of fetch(key) as \"value[start,end]\" joined by \",\") -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.sessionStoreBuilder(Stores.persistentSessionStore("ses", ms(500)), S, S));
                b.stream("in", SS).process(HandSessions::new, "ses").to("out", Produced.with(S, S));
            },
            "in a x 10; in a y 30; in b z 31; in a w 35; in a - 5; in a v 90; in a u 140; in a t 60; in a s 30",
            feed().length(16, 22).values("in", letters()));
        add("processor-versioned-store", "Processor API",
            "Stream `in` (string, string) -> process (versioned store `ver`, history retention 80 ms): for a non-null key put(key, value, ts), then forward (key, latest + \"|\" + as of ts - 30 + \"|\" + as of ts) each as value@timestamp>validTo or none -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore("ver", ms(80)), S, S));
                b.stream("in", SS).process(Versions::new, "ver").to("out", Produced.with(S, S));
            },
            "in a x 10; in a y 30; in b z 31; in a w 20; in a - 25; in a v 90; in a u 140; in a t 60; in a s 30; in a - 150",
            feed().late(35, 110).values("in", letters()));
        add("processor-timestamped-store", "Processor API",
            "Stream `in` (string, long) -> process (timestamped key-value store `st`): for a non-null key and value, put the sum of the stored and the new value with the greater of both timestamps; a null value deletes; forward (key, sum) with the stored timestamp; when the value is 7, forward every row in key order first -> `out`.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore("st"), S, L));
                b.stream("in", SL).process(Sums::new, "st").to("out", Produced.with(S, L));
            },
            "in a 1 10; in a 2 5; in b 3 20; in c 7 15; in a - 30; in a 7 1; in - 4 40",
            feed().values("in", longs(9)));
        add("processor-chain", "Processor API",
            "Stream `in` (string, string) -> process named `first` (stores `seen`, `shared`: counts records per key in `seen`, puts value into `shared`; forwards value + \"#\" + n twice, the second with timestamp + 5) -> filter(n is not divisible by 3, by the text after #) -> process named `second` (store `shared` and `last`: forwards (shared value of the key) + \"<\" + value + \"<\" + last; then last = value) -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("seen"), S, L));
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("shared"), S, S));
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("last"), S, S));
                b.stream("in", SS).process(First::new, Named.as("first"), "seen", "shared")
                    .filter((k, v) -> Integer.parseInt(v.substring(v.indexOf('#') + 1)) % 3 != 0)
                    .process(Second::new, Named.as("second"), "shared", "last").to("out", Produced.with(S, S));
            },
            "in a x 10; in b y 5; in a z 20; in a w 15; in - v 30; in a - 31; in a u 32",
            feed().headers(20).values("in", letters()));
        add("punctuators-rescheduled", "Processor API",
            "Stream `in` (string, string) -> process: value \"s<n>\" cancels the stream-time punctuator (if any) and schedules a new one every n ms; \"w<n>\" likewise for the wall clock; \"stop\" cancels both; everything else forwards (key, value). Each firing logs \"s<n> <ts>\" or \"w<n> <ts>\" and forwards (\"tick\", that text) with the punctuation's time -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).process(() -> new Clocks(x)).to("out", Produced.with(S, S));
            },
            "in a s10 5; in a x 7; in a y 16; in a s30 20; in a z 25; in a w50 40; + 49; + 1; in a v 130; + 120; in a w20 131; + 5; + 20; in a stop 140; in a u 300; + 500; in a w10 301; + 10; in a s5 290; in a t 294; in a r 296",
            feed().advances(20, 150).values("in", oneOf("x", "y", "s10", "s25", "w30", "w100", "stop", "z", "v")));
        add("punctuator-in-punctuator", "Processor API",
            "Stream `in` (string, string) -> process: a stream-time punctuator every 40 ms schedules, on its first three firings, another every (10 * firings) ms that cancels itself after 2 firings; each logs \"outer <ts>\" or \"inner<i> <ts>\" and forwards (\"p\", that text); a wall-clock punctuator every 100 ms logs \"wall <ts>\" and cancels the outer one at its 4th firing; process forwards the record with value + \"@\" + current stream time + \"/\" + wall clock -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).process(() -> new Nested(x)).to("out", Produced.with(S, S));
            },
            "in a x 5; in a y 41; in a z 52; in a w 61; in a v 85; + 100; in a u 90; + 300; in a t 125; + 100; + 100; in a s 200; in a r 300",
            feed().advances(12, 150).values("in", letters()));
        add("forward-to-named-children", "Processor API",
            "Stream `in` (string, long) -> process named `router`: even values are forwarded to the child `evens`, odd ones to `odds`, null to all children; children of the router, in this order: mapValues(v * 2; named `evens`) -> `even`; mapValues(v * 10 ; named `odds`) -> `odd`; foreach(log \"seen key=value\"; named `all`). Null stays null.",
            topics("> in s l", "< even s l", "< odd s l"), Map.of(), (b, x) -> {
                var routed = b.stream("in", SL).process(Router::new, Named.as("router"));
                routed.mapValues(v -> v == null ? null : v * 2, Named.as("evens")).to("even", Produced.with(S, L));
                routed.mapValues(v -> v == null ? null : v * 10, Named.as("odds")).to("odd", Produced.with(S, L));
                routed.foreach((k, v) -> x.add("seen " + t(k) + "=" + t(v)), Named.as("all"));
            },
            "in a 1 0; in a 2 5; in b - 6; in - 3 7",
            feed().values("in", longs(9)));
        add("process-key-change-count", "Processor API",
            "Stream `in` (string, string) -> process: forwards, for each word of the value (split at _), (word, key) with timestamp + its position -> groupByKey -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SS).process(WordKeys::new).groupByKey().count(kv("counts", L)).toStream().to("out");
            },
            "in a x_y_x 0; in b y 1; in - x 5; in c - 6; in a z_x 2",
            feed().length(18, 24).headers(20).values("in", phrase()));
        add("process-values-after-filter", "Processor API",
            "Stream `in` (string, long) -> selectKey(\"k\" + value % 2; null for null) -> filter(value not null) -> processValues named `diff` (store `last` plain: forwards value - last of the key, twice, the second time with timestamp + 1000) -> groupByKey(named `grp`; string, long) -> tumbling 50 ms, grace 1000 ms -> reduce(+; store `sum`) -> toStream -> `out`. The stream is marked by selectKey, processValues is not repartitioned, the grouping is.",
            topics("> in s l", "< out w50 l"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("last"), S, L));
                b.stream("in", SL).selectKey((k, v) -> v == null ? null : "k" + v % 2).filter((k, v) -> v != null)
                    .processValues(Difference::new, Named.as("diff"), "last")
                    .groupByKey(Grouped.with("grp", S, L)).windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(1000)))
                    .reduce(Long::sum, win("sum", L)).toStream().to("out");
            },
            "in a 1 0; in a 3 5; in b 2 6; in - 3 7; in a - 8; in a 8 40; in a 1 20",
            feed().length(18, 24).values("in", longs(9)));
        add("global-store-processor", "Processor API",
            "Global store `glo` (plain, string, string) fed from topic `facts` (string, string) by a processor that puts (key in upper case, value + \"/\" + previous or none) for non-null keys, a null value deletes; stream `in` (string, string) -> process (no stores attached): forwards (key, value + \"+\" + global value of the key in upper case or none) for non-null keys -> `out`.",
            topics("> facts s s", "> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addGlobalStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("glo"), S, S).withLoggingDisabled(), "facts", SS, Facts::new);
                b.stream("in", SS).process(Ask::new).to("out", Produced.with(S, S));
            },
            "in a x 0; facts a f1 10; in a y 5; facts a f2 3; in a z 20; facts a - 30; in a w 31; in - v 32",
            feed().nulls(0, 8).values("in", letters()));
        add("two-global-tables", "Processor API",
            "Global table `facts` (string, string; store `glo`) and global table `more` (string, string; no name); stream `in` (string, string) -> leftJoin(facts by key, value + \"+\" + fact) -> join(more by the first letter of the value, value + \"*\" + more) -> `out`.",
            topics("> facts s s", "> more s s", "> in s s", "< out s s"), Map.of(), (b, x) -> {
                var facts = b.globalTable("facts", SS, kv("glo", S));
                var more = b.globalTable("more", SS);
                b.stream("in", SS).leftJoin(facts, (k, v) -> k, (v, f) -> t(v) + "+" + t(f))
                    .join(more, (k, v) -> v.substring(0, 1), (v, m) -> v + "*" + m).to("out", Produced.with(S, S));
            },
            "in a x 0; facts a f1 10; more x m1 1; in a y 5; in a x 6; facts a - 3; in a x 20; more y m2 5; in - y 32; in - x 40",
            feed().keys("more", "x", "y", "z").values("in", oneOf("x", "y", "z")));
        add("low-level-many", "Processor API",
            "Low-level Topology: source S1 over `in1`; source S2 over `in2` and `in3`; processor P1 (parents S1, S2; shared plain window store `win`, retention 1000 ms, size 100 ms: puts (key, value) at ts - ts % 100 and forwards the record) ; processor P2 (parent P1 and S2; store `win` and key-value store `n`: forwards (key, value + \"/\" + window value at ts - ts % 100 or none + \"/\" + count of the key so far)); sink K1 `out1` (parent P2), sink K2 `out2` (parents P1, S1). Null keys are ignored by both processors.",
            topics("> in1 s s", "> in2 s s", "> in3 s s", "< out1 s s", "< out2 s s"), Map.of(), null,
            "in1 a x 0; in2 a y 50; in3 b z 60; in1 a w 120; in2 a v 110; in3 - u 130; in1 b - 140; in2 b t 90",
            feed().length(16, 22).values("in1", letters()));
        definition("low-level-many").topology(effects -> new Topology()
            .addSource("S1", S.deserializer(), S.deserializer(), "in1")
            .addSource("S2", S.deserializer(), S.deserializer(), "in2", "in3")
            .addProcessor("P1", LowFirst::new, "S1", "S2")
            .addProcessor("P2", LowSecond::new, "P1", "S2")
            .addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("win", ms(1000), ms(100), false), S, S), "P1", "P2")
            .addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("n"), S, L), "P2")
            .addSink("K1", "out1", S.serializer(), S.serializer(), "P2")
            .addSink("K2", "out2", S.serializer(), S.serializer(), "P1", "S1"));
        add("low-level-two-subtopologies", "Processor API",
            "Low-level Topology: source A over `in`; sink `mid` (parent A); source B over `mid`; processor C (parent B; store `c` in memory: counts per key, forwards (key, value + n)); sink D `out` (parent C); a source E over `other` with a sink F (extractor: topic \"out\" when the value is longer than 2, else \"side\").",
            topics("> in s s", "* mid s s", "> other s s", "< out s s", "< side s s"), Map.of(), null,
            "in a x 0; mid a y 50; other b z 60; other b zzz 61; in a w 20; in - v 21; other a - 22; in a - 23",
            feed().values("other", oneOf("xx", "yyy", "z")));
        definition("low-level-two-subtopologies").topology(effects -> new Topology()
            .addSource("A", S.deserializer(), S.deserializer(), "in")
            .addSink("M", "mid", S.serializer(), S.serializer(), "A")
            .addSource("B", S.deserializer(), S.deserializer(), "mid")
            .addProcessor("C", Counted::new, "B")
            .addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("c"), S, L), "C")
            .addSink("D", "out", S.serializer(), S.serializer(), "C")
            .addSource("E", S.deserializer(), S.deserializer(), "other")
            .addSink("F", new Route<String>(v -> v != null && v.length() > 2 ? "out" : "side"), S.serializer(), S.serializer(), "E"));
        add("pattern-source", "Processor API",
            "Stream over the pattern `in-[0-9]` (string, string; inputs to in-1, in-2) -> mapValues(key + \":\" + value) -> groupByKey -> count(store `counts`) -> toStream -> `out`.",
            topics("> in-1 s s", "> in-2 s s", "< out s l"), Map.of(), (b, x) -> {
                b.stream(java.util.regex.Pattern.compile("in-[0-9]"), SS).mapValues((k, v) -> t(k) + ":" + t(v))
                    .groupByKey().count(kv("counts", L)).toStream().to("out");
            },
            "in-1 a x 0; in-2 a y 5; in-1 b z 3; in-2 - w 6; in-2 b - 7",
            feed().values("in-1", letters()));
        add("processor-schedule-forward-downstream", "Processor API",
            "Stream `in` (string, string) -> process named `hold` (store `held`: collects value + \",\" per key; every 60 ms of stream time forwards every row with the punctuation's time and clears the store) -> mapValues(\"<\" + v + \">\") -> process named `again` (every 30 ms of stream time forwards (\"beat\", number of records it saw); forwards every record) -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("held"), S, S));
                b.stream("in", SS).process(Hold::new, Named.as("hold"), "held").mapValues(v -> "<" + v + ">")
                    .process(Beat::new, Named.as("again")).to("out", Produced.with(S, S));
            },
            "in a x 5; in b y 20; in a z 61; in a w 40; in c v 95; in a u 130; in a t 400",
            feed().values("in", letters()));
    }

    // Errors

    static void errors() {
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
            feed().length(16, 22).values("in", longs(9)));
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

    // Timestamps

    static void timestamps() {
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

    // Stateless

    static void stateless() {
        add("flat-map-many", "Stateless",
            "Stream `in` (string, long) -> flatMap(value records (key + i, i) for i from value - 1 down to 0; null gives none) -> flatMapValues((k, v) -> [v, v + 100] when v is odd, [] when v is 0, else [v]) -> merge with the source filtered by value > 15 -> `out`.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                var s = b.stream("in", SL);
                s.flatMap((k, v) -> {
                    final List<KeyValue<String, Long>> all = new ArrayList<>();
                    if (v != null) for (long i = v - 1; i >= 0; i--) all.add(KeyValue.pair(t(k) + i, i));
                    return all;
                }).flatMapValues((k, v) -> v % 2 == 1 ? List.of(v, v + 100) : v == 0 ? List.<Long>of() : List.of(v))
                    .merge(s.filter((k, v) -> v != null && v > 15)).to("out", Produced.with(S, L));
            },
            "in a 3 0; in - 2 5; in b - 6; in c 17 1; in d 0 2",
            feed().length(9, 13).headers(10).values("in", longs(18)));
        add("branch-in-branch", "Stateless",
            "Stream `in` (string, long) -> split(no name): branch(v null; unnamed) -> `nulls`; branch(v < 10; given a function: the branch -> split(named `in-`): branch(v even; named `even`) -> `even`; default(named `odd`, function v * 1000, returned) -> `odd`); default(unnamed) -> split(): branch(v > 15) -> `big`, no default.",
            topics("> in s l", "< big s l", "< even s l", "< nulls s l", "< odd s l"), Map.of(), (b, x) -> {
                var outer = b.stream("in", SL).split().branch((k, v) -> v == null)
                    .branch((k, v) -> v < 10, Branched.withConsumer(low -> {
                        var inner = low.split(Named.as("in-")).branch((k, v) -> v % 2 == 0, Branched.as("even"))
                            .defaultBranch(Branched.withFunction(odd -> odd.mapValues(v -> v * 1000), "odd"));
                        inner.get("in-even").to("even");
                        inner.get("in-odd").to("odd", Produced.with(S, L));
                    })).defaultBranch();
                outer.entrySet().stream().sorted(Map.Entry.comparingByKey()).forEach(e -> {
                    if (e.getKey().endsWith("1")) e.getValue().to("nulls");
                    if (e.getKey().endsWith("0")) e.getValue().split().branch((k, v) -> v > 15, Branched.withConsumer(big -> big.to("big"))).noDefaultBranch();
                });
            },
            "in a 3 0; in - 2 5; in b - 6; in c 17 1; in d 12 2",
            feed().values("in", longs(20)));
        add("merge-three", "Stateless",
            "Streams `in1`, `in2`, `in3` (string, string): in1.filter(v not null).merge(in2.mapValues(\"2\" + v)).merge(in3.selectKey(v), named `all`) -> groupByKey -> count(store `counts`) -> toStream -> `out`. The mark of in3 makes the repartition.",
            topics("> in1 s s", "> in2 s s", "> in3 s s", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in1", SS).filter((k, v) -> v != null).merge(b.stream("in2", SS).mapValues(v -> "2" + t(v)))
                    .merge(b.stream("in3", SS).selectKey((k, v) -> v), Named.as("all")).groupByKey().count(kv("counts", L)).toStream().to("out");
            },
            "in1 a x 0; in2 a y 5; in3 b a 6; in1 b - 7; in2 - z 1; in3 c - 2; in3 c b 3",
            feed().values("in3", oneOf("a", "b", "z")));
        add("peek-order-many-children", "Stateless",
            "Stream `in` (string, long); four children of the source: peek(log \"1\") -> filter(even) -> peek(log \"1e\") -> `first`; peek(log \"2\") whose two children are foreach(log \"2a\") and mapValues(v + 1) -> peek(log \"2b\") -> `second`; foreach(log \"3\"); print to a file; then selectKey(\"k\") -> repartition(named `rep`) -> peek(log \"4\") -> `third`. Logs end with \" key=value\".",
            topics("> in s l", "< first s l", "< second s l", "< third s l"), Map.of(), (b, x) -> {
                var s = b.stream("in", SL);
                s.peek((k, v) -> x.add("1 " + t(k) + "=" + t(v))).filter((k, v) -> v != null && v % 2 == 0).peek((k, v) -> x.add("1e " + t(k) + "=" + t(v))).to("first");
                var two = s.peek((k, v) -> x.add("2 " + t(k) + "=" + t(v)));
                two.foreach((k, v) -> x.add("2a " + t(k) + "=" + t(v)));
                two.mapValues(v -> v == null ? null : v + 1).peek((k, v) -> x.add("2b " + t(k) + "=" + t(v))).to("second", Produced.with(S, L));
                s.foreach((k, v) -> x.add("3 " + t(k) + "=" + t(v)));
                s.print(Printed.<String, Long>toFile("/dev/null").withLabel("seen"));
                s.selectKey((k, v) -> "k").repartition(Repartitioned.with(S, L).withName("rep")).peek((k, v) -> x.add("4 " + t(k) + "=" + t(v))).to("third");
            },
            "in a 3 0; in - 2 5; in b - 6; in c 18 1",
            feed().length(18, 24).values("in", longs(20)));
        add("repartition-chain", "Stateless",
            "Stream `in` (string, string) -> selectKey(v) -> repartition(named `one`, 4 partitions) -> mapValues(key + v) -> map((v, key)) -> repartition(unnamed) -> flatMapValues([v, v + v]) -> groupByKey -> reduce(a + \"|\" + v; store `red`) -> toStream -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).selectKey((k, v) -> v).repartition(Repartitioned.with(S, S).withName("one").withNumberOfPartitions(4))
                    .mapValues((k, v) -> t(k) + t(v)).map((k, v) -> KeyValue.pair(v, t(k))).repartition(Repartitioned.with(S, S))
                    .flatMapValues(v -> List.of(v, v + v)).groupByKey().reduce((a, v) -> a + "|" + v, kv("red", S)).toStream().to("out");
            },
            "in a x 0; in b y 5; in - x 6; in c - 1",
            feed().length(18, 24).values("in", oneOf("x", "y", "z")));
        add("dynamic-topic-read-again", "Stateless",
            "Stream `in` (string, long) -> to(topic by value: odd `mid`, even `side`, null `out`); stream `mid` (string, long) -> mapValues(v * 3 + 1) -> to(topic: v > 30 `side`, else `out`). All (string, long).",
            topics("> in s l", "* mid s l", "< out s l", "< side s l"), Map.of(), (b, x) -> {
                b.stream("in", SL).to(new Route<Long>(v -> v == null ? "out" : v % 2 == 1 ? "mid" : "side"), Produced.with(S, L));
                b.stream("mid", SL).mapValues(v -> v == null ? null : v * 3 + 1).to(new Route<Long>(v -> v != null && v > 30 ? "side" : "out"), Produced.with(S, L));
            },
            "in a 3 0; in - 2 5; in b - 6; in c 17 1; mid d 12 2",
            feed().values("in", longs(20)));
        add("feedback-topic", "Stateless",
            "Stream `in` (string, long) -> filter(v not null) -> `loop`; stream `loop` (string, long) -> split: branch(v > 1) -> mapValues(v / 2) -> `loop`; default -> `out`. A topic that feeds itself.",
            topics("> in s l", "* loop s l", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SL).filter((k, v) -> v != null).to("loop");
                var map = b.stream("loop", SL).split(Named.as("l-")).branch((k, v) -> v != null && v > 1, Branched.as("again")).defaultBranch(Branched.as("done"));
                map.get("l-again").mapValues(v -> v / 2).to("loop", Produced.with(S, L));
                map.get("l-done").to("out");
            },
            "in a 9 0; in - 2 5; in b - 6; loop c 5 1; loop d - 3",
            feed().length(18, 24).values("in", longs(20)));
        add("same-topic-two-streams", "Stateless",
            "Stream `in` (string, string) read by two builder.stream(\"in\"): the first -> mapValues(v + \"1\") -> `one`; the second -> groupByKey -> count(store `counts`) -> toStream -> `two`; then stream over [`in`] once more -> foreach(log \"third key=value\").",
            topics("> in s s", "< one s s", "< two s l"), Map.of(), (b, x) -> {
                b.stream("in", SS).mapValues(v -> t(v) + "1").to("one");
                b.stream("in", SS).groupByKey().count(kv("counts", L)).toStream().to("two");
                b.stream(List.of("in"), SS).foreach((k, v) -> x.add("third " + t(k) + "=" + t(v)));
            },
            "in a x 0; in b y 5; in - x 6; in c - 1",
            feed().length(18, 24).values("in", letters()));
        add("select-key-to-table-join", "Stateless",
            "Stream `in` (string, string) -> selectKey(first letter of v, null for null) -> toTable(named `tab`, store `tabs`); stream `other` (string, string) -> values() -> groupByKey -> count(store `counts`); the first table.leftJoin(counts, v + \"/\" + n) -> toStream((k, v) -> k + k) -> `out`.",
            topics("> in s s", "> other s s", "< out s s"), Map.of(), (b, x) -> {
                var tab = b.stream("in", SS).selectKey((k, v) -> v == null ? null : v.substring(0, 1)).toTable(Named.as("tab"), kv("tabs", S));
                var counts = b.stream("other", SS).groupByKey().count(kv("counts", L));
                tab.leftJoin(counts, (v, n) -> v + "/" + t(n)).toStream((k, v) -> k + k).to("out", Produced.with(S, S));
            },
            "in a x1 0; other x q 5; in b x2 2; other x r 1; in c - 3; other y s 4; in d y5 9; other - t 10",
            feed().keys("other", "x", "y", "z").values("in", oneOf("x1", "y1", "z1", "x2")));
    }

    // Mixed

    static void mixed() {
        add("orders-enriched", "Mixed",
            "Stream `orders` (string, string \"customer:product:amount\") -> filter(v not null) -> selectKey(customer) -> join(table `customers` (string, string country; store `cust`), order + \":\" + country) -> leftJoin(global table `products` (string, string; store `prod`) by product, order + \":\" + product name) -> peek(log v) -> groupBy(country; named `by-country`) -> tumbling 50 ms, grace 30 ms -> aggregate(init 0, agg + amount; store `revenue`) -> toStream -> `out`.",
            topics("> orders s s", "> customers s s", "> products s s", "< out w50 l"), Map.of(), (b, x) -> {
                var customers = b.table("customers", SS, kv("cust", S));
                var products = b.globalTable("products", SS, kv("prod", S));
                b.stream("orders", SS).filter((k, v) -> v != null).selectKey((k, v) -> v.split(":")[0])
                    .join(customers, (o, c) -> o + ":" + c)
                    .leftJoin(products, (k, v) -> v.split(":")[1], (o, p) -> o + ":" + t(p))
                    .peek((k, v) -> x.add(v))
                    .groupBy((k, v) -> v.split(":")[3], Grouped.with("by-country", S, S))
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(30)))
                    .aggregate(() -> 0L, (k, v, a) -> a + Long.parseLong(v.split(":")[2]), win("revenue", L)).toStream().to("out");
            },
            "orders 1 a:p:5 0; customers a de 1; orders 2 a:p:5 10; products p pen 11; orders 3 a:p:7 12; customers a fr 20; orders 4 a:q:1 55; orders 5 a:p:9 3; customers a - 60; orders 6 a:p:2 61",
            feed().keys("products", "p", "q").values("customers", oneOf("de", "fr")).values("products", oneOf("pen", "quill"))
                .weight("orders", 3).values("orders", (r, n) -> "abc".charAt(r.nextInt(3)) + ":" + "pq".charAt(r.nextInt(2)) + ":" + r.nextInt(10)));
        add("word-count-windows-and-total", "Mixed",
            "Stream `in` (string, string) -> flatMapValues(split at _) -> groupBy(word; named `words`) = g; g -> count(store `total`) = total; g -> tumbling 40 ms, grace 20 ms -> count(store `windowed`) -> toStream -> map((word, n + \"@\" + start)) -> join(total, v + \"/\" + total) -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                var g = b.stream("in", SS).flatMapValues(v -> words(v)).groupBy((k, v) -> v, Grouped.with("words", S, S));
                var total = g.count(kv("total", L));
                g.windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(20))).count(win("windowed", L)).toStream()
                    .map((k, v) -> KeyValue.pair(k.key(), v + "@" + k.window().start()))
                    .join(total, (v, n) -> v + "/" + n, Joined.with(S, S, L)).to("out", Produced.with(S, S));
            },
            "in a x_y_x 0; in b y 10; in a x 50; in - y_y 30; in a - 51; in a x 5",
            feed().length(16, 22).values("in", phrase()));
        add("four-subtopologies", "Mixed",
            "Stream `in` (string, string) -> groupBy(v; named `one`) -> count(store `c1`) -> toStream -> map((\"n\" + count, word)) -> groupByKey(named `two`; string, string) -> aggregate(init \"\", agg + v; store `c2`) -> groupBy((length of v as text, k); named `three`; string, string) -> count(store `c3`) -> toStream -> `mid`; stream `mid` (string, long) -> groupByKey -> reduce(max; store `c4`) -> toStream -> filter(v > 1) -> `out`.",
            topics("> in s s", "* mid s l", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupBy((k, v) -> v, Grouped.with("one", S, S)).count(kv("c1", L)).toStream()
                    .map((k, v) -> KeyValue.pair("n" + v, k)).groupByKey(Grouped.with("two", S, S)).aggregate(() -> "", (k, v, a) -> a + v, kv("c2", S))
                    .groupBy((k, v) -> KeyValue.pair("" + v.length(), k), Grouped.with("three", S, S)).count(kv("c3", L)).toStream().to("mid", Produced.with(S, L));
                b.stream("mid", SL).groupByKey(Grouped.with(S, L)).reduce(Math::max, kv("c4", L)).toStream().filter((k, v) -> v > 1).to("out");
            },
            "in a x 0; in b y 5; in a x 6; in - y 1; in c - 9; in c z 10; mid q 5 11",
            feed().length(21, 28).values("in", oneOf("x", "y", "z", "w")).keys("mid", "1", "2").values("mid", longs(5)));
        add("left-join-then-window", "Mixed",
            "Outer join emit interval 0. Streams `left`, `right` (string, string): leftJoin(l + \"+\" + r, difference 10 ms, grace 10 ms; named and stored `j`) -> selectKey(matched or lone, by the text null) -> groupByKey(named `grp`) -> tumbling 50 ms, grace 100 ms -> count(store `counts`) -> suppress(untilWindowCloses, unbounded) -> toStream -> `out`; the join also -> `joined`.",
            topics("> left s s", "> right s s", "< joined s s", "< out w50 l"), JOIN0, (b, x) -> {
                var j = b.stream("left", SS).leftJoin(b.stream("right", SS), (l, r) -> t(l) + "+" + t(r), JoinWindows.ofTimeDifferenceAndGrace(ms(10), ms(10)),
                    StreamJoined.with(S, S, S).withName("j").withStoreName("j"));
                j.to("joined", Produced.with(S, S));
                j.selectKey((k, v) -> v.endsWith("+null") ? "lone" : "matched").groupByKey(Grouped.with("grp", S, S))
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(100))).count(win("counts", L))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "left a x 0; right a y 5; left b z 10; left b w 40; right c v 41; left a u 90; left a t 300; right a s 301; left b r 600",
            feed().values("left", letters()));
        add("left-join-big-times", "Mixed",
            "Streams `left`, `right` (string, string), big times: leftJoin(l + \"+\" + r, difference 60 s, grace 30 s; named and stored `j`), default emit interval -> `out`.",
            topics("> left s s", "> right s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("left", SS).leftJoin(b.stream("right", SS), (l, r) -> t(l) + "+" + t(r), JoinWindows.ofTimeDifferenceAndGrace(ms(60_000), ms(30_000)),
                    StreamJoined.with(S, S, S).withName("j").withStoreName("j")).to("out", Produced.with(S, S));
            },
            "left a x 1700000000000; right a y 1700000030000; left b z 1700000100000; + 1000; left b w 1700000400000; right c v 1700000400000; + 1000; left a u 1700003600000; right a t 1700003540000; right b s 1700000400000; + 2000; left b r 1700007200000; right a q 1700000030000",
            big().advances(12, 1500).values("left", letters()));
        add("sessions-and-page-views", "Mixed",
            "Stream `clicks` (string, string page) -> groupByKey -> session windows, gap 30 ms, grace 30 ms -> aggregate(init \"\", agg + v, merger a + b; store `sessions`) -> toStream -> filter(v not null) -> map((key, v + \"[\" + start + \",\" + end + \"]\")) -> toTable(store `last`); clicks.leftJoin(that table, page + \"<\" + session) -> `views`; stream `logins` (string, string) -> leftJoin(that table, login + \"~\" + session) -> `out`.",
            topics("> clicks s s", "> logins s s", "< out s s", "< views s s"), Map.of(), (b, x) -> {
                var clicks = b.stream("clicks", SS);
                var last = clicks.groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(30), ms(30)))
                    .aggregate(() -> "", (k, v, a) -> a + t(v), (k, p, q) -> p + q, ses("sessions", S)).toStream().filter((k, v) -> v != null)
                    .map((k, v) -> KeyValue.pair(k.key(), v + "[" + k.window().start() + "," + k.window().end() + "]"))
                    .toTable(kv("last", S));
                clicks.leftJoin(last, (c, s) -> t(c) + "<" + t(s)).to("views", Produced.with(S, S));
                b.stream("logins", SS).leftJoin(last, (l, s) -> t(l) + "~" + t(s)).to("out", Produced.with(S, S));
            },
            "clicks a p 0; logins a l1 5; clicks a q 20; clicks b r 100; clicks a s 60; logins b l2 101; clicks a t 45; logins - l3 102; clicks - u 103; clicks a - 104",
            feed().weight("clicks", 2).values("clicks", letters()));
        add("top-of-groups", "Mixed",
            "Table `scores` (string, string \"team:points\"; store `scores`) -> filter(v contains \":\") -> groupBy((team, k + \"=\" + points); named `teams`) -> aggregate(init \"\", add agg + v + \";\", subtract: first occurrence of v + \";\" removed; store `teams`) -> mapValues(sorted parts joined by \",\") -> join(table `names` (string, string; store `names`), sorted + \"@\" + name) -> toStream -> `out`.",
            topics("> scores s s", "> names s s", "< out s s"), Map.of(), (b, x) -> {
                b.table("scores", SS, kv("scores", S)).filter((k, v) -> v.contains(":"))
                    .groupBy((k, v) -> KeyValue.pair(v.split(":")[0], k + "=" + v.split(":")[1]), Grouped.with("teams", S, S))
                    .aggregate(() -> "", (k, v, a) -> a + v + ";", (k, v, a) -> a.replaceFirst(java.util.regex.Pattern.quote(v + ";"), ""), kv("teams", S))
                    .mapValues(v -> java.util.Arrays.stream(v.split(";")).sorted().collect(java.util.stream.Collectors.joining(",")))
                    .join(b.table("names", SS, kv("names", S)), (v, n) -> v + "@" + n).toStream().to("out", Produced.with(S, S));
            },
            "scores a r:1 0; names r Red 5; scores b r:2 6; scores a g:3 2; names g Green 8; scores b - 9; scores c plain 10; names r - 11; scores c r:9 12",
            feed().keys("names", "r", "g").values("scores", (r, n) -> r.nextInt(6) == 0 ? "plain" : "rg".charAt(r.nextInt(2)) + ":" + n).weight("scores", 3));
        add("deduplicate-then-reduce", "Mixed",
            "Stream `in` (string, string) -> process named `dedup` (plain window store `seen`, retention 60 ms, size 60 ms: forwards a record of non-null key and value when fetch(key + value, ts - 30, ts + 30) is empty, then puts (key + value, \"1\") at ts) -> repartition(named `clean`) -> groupByKey -> hopping 60 ms by 30 ms, grace 20 ms -> reduce(a + v; store `red`) -> toStream -> selectKey(key) -> toTable(store `latest`) -> mapValues(length of v; long) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("seen", ms(60), ms(60), false), S, S));
                b.stream("in", SS).process(Dedup::new, Named.as("dedup"), "seen").repartition(Repartitioned.with(S, S).withName("clean"))
                    .groupByKey(Grouped.with(S, S)).windowedBy(TimeWindows.ofSizeAndGrace(ms(60), ms(20)).advanceBy(ms(30)))
                    .reduce((a, v) -> a + v, win("red", S)).toStream().selectKey((k, v) -> k.key()).toTable(kv("latest", S))
                    .mapValues(v -> (long) v.length()).toStream().to("out", Produced.with(S, L));
            },
            "in a x 0; in a x 10; in a y 15; in a x 41; in b x 20; in a x 110; in a x 60; in - q 111; in a - 112",
            feed().length(21, 28).late(30, 80).values("in", oneOf("x", "y", "z")));
        add("headers-through-windows", "Mixed",
            "Stream `in` (string, string), headers -> groupByKey: tumbling 40 ms, grace 10 ms -> count(store `t`) -> suppress(untilWindowCloses, unbounded) -> toStream -> `closed`; session windows, gap 20 ms, grace 10 ms -> count(store `s`) -> toStream -> `sessions`; tumbling 40 ms, grace 10 ms, emit on close -> count(store `e`, retention 1000 ms) -> toStream -> `emitted`; toTable(store `tab`) -> suppress(untilTimeLimit 20 ms, unbounded) -> toStream -> `limited`.",
            topics("> in s s", "< closed w40 l", "< emitted w40 l", "< limited s s", "< sessions x l"), EMIT0, (b, x) -> {
                var in = b.stream("in", SS);
                var g = in.groupByKey();
                g.windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(10))).count(win("t", L)).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("closed");
                g.windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(10))).count(ses("s", L)).toStream().to("sessions");
                g.windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(10))).emitStrategy(EmitStrategy.onWindowClose()).count(win("e", L).withRetention(ms(1000))).toStream().to("emitted");
                in.toTable(kv("tab", S)).suppress(Suppressed.untilTimeLimit(ms(20), Suppressed.BufferConfig.unbounded())).toStream().to("limited");
            },
            "in a x 0; in a y 10; in b z 60; in a w 30; in a v 120; in a u 130; in c t 300",
            feed().length(13, 17).headers(50).values("in", letters()));
    }

    // Windowed tables joined, optimized topologies, names and edges

    static void further() {
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

    /** A topic by value; describe() shows it as Python's would show a lambda. */
    record Route<V>(Function<V, String> topic) implements TopicNameExtractor<String, V> {
        @Override public String extract(final String key, final V value, final RecordContext context) {
            return topic.apply(value);
        }
        @Override public String toString() {
            return "<lambda>";
        }
    }

    // Processors' own classes

    abstract static class P<V, W> extends ContextualProcessor<String, V, String, W> {
        void out(final Record<String, V> r, final W value) {
            context().forward(r.withValue(value));
        }
    }

    static final class Around extends P<String, String> {
        final String store;
        Around(final String store) { this.store = store; }
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null) return;
            final WindowStore<String, String> win = context().getStateStore(store);
            win.put(r.key(), r.value(), r.timestamp());
            final StringJoiner all = new StringJoiner(",");
            try (var rows = win.fetch(r.key(), r.timestamp() - 40, r.timestamp() + 40)) {
                while (rows.hasNext()) { final var row = rows.next(); all.add(row.value + "@" + row.key); }
            }
            out(r, all.toString());
        }
    }

    static final class HandSessions extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null) return;
            final SessionStore<String, String> ses = context().getStateStore("ses");
            final long ts = r.timestamp();
            final List<Windowed<String>> old = new ArrayList<>();
            try (var rows = ses.fetch(r.key())) {
                while (rows.hasNext()) {
                    final var row = rows.next();
                    if (row.key.window().start() <= ts && ts <= row.key.window().end()) old.add(row.key);
                }
            }
            old.forEach(ses::remove);
            if (r.value() != null) ses.put(new Windowed<>(r.key(), new org.apache.kafka.streams.kstream.internals.SessionWindow(ts - ts % 20, ts)), r.value());
            final StringJoiner all = new StringJoiner(",");
            try (var rows = ses.fetch(r.key())) {
                while (rows.hasNext()) {
                    final var row = rows.next();
                    all.add(row.value + "[" + row.key.window().start() + "," + row.key.window().end() + "]");
                }
            }
            out(r, all.toString());
        }
    }

    static final class Versions extends P<String, String> {
        static String show(final VersionedRecord<String> v) {
            return v == null ? "none" : v.value() + "@" + v.timestamp() + ">" + v.validTo().map(String::valueOf).orElse("-");
        }
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null) return;
            final VersionedKeyValueStore<String, String> ver = context().getStateStore("ver");
            ver.put(r.key(), r.value(), r.timestamp());
            out(r, show(ver.get(r.key())) + "|" + show(ver.get(r.key(), r.timestamp() - 30)) + "|" + show(ver.get(r.key(), r.timestamp())));
        }
    }

    static final class Sums extends P<Long, Long> {
        @Override public void process(final Record<String, Long> r) {
            if (r.key() == null) return;
            final TimestampedKeyValueStore<String, Long> st = context().getStateStore("st");
            if (r.value() == null) { st.delete(r.key()); return; }
            if (r.value() == 7) try (var rows = st.all()) {
                while (rows.hasNext()) {
                    final var row = rows.next();
                    context().forward(new Record<>(row.key, row.value.value(), row.value.timestamp()));
                }
            }
            final ValueAndTimestamp<Long> old = st.get(r.key());
            final long sum = r.value() + (old == null ? 0 : old.value());
            final long ts = old == null ? r.timestamp() : Math.max(old.timestamp(), r.timestamp());
            st.put(r.key(), ValueAndTimestamp.make(sum, ts));
            context().forward(r.withValue(sum).withTimestamp(ts));
        }
    }

    static final class First extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null) return;
            final KeyValueStore<String, Long> seen = context().getStateStore("seen");
            final KeyValueStore<String, String> shared = context().getStateStore("shared");
            final Long before = seen.get(r.key());
            final long n = before == null ? 1 : before + 1;
            seen.put(r.key(), n);
            shared.put(r.key(), r.value());
            out(r, t(r.value()) + "#" + n);
            context().forward(r.withValue(t(r.value()) + "#" + n).withTimestamp(r.timestamp() + 5));
        }
    }

    static final class Second extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            final KeyValueStore<String, String> shared = context().getStateStore("shared");
            final KeyValueStore<String, String> last = context().getStateStore("last");
            out(r, t(shared.get(r.key())) + "<" + r.value() + "<" + t(last.get(r.key())));
            last.put(r.key(), r.value());
        }
    }

    static final class Clocks extends P<String, String> {
        final List<String> x;
        Cancellable stream;
        Cancellable wall;
        Clocks(final List<String> x) { this.x = x; }
        @Override public void process(final Record<String, String> r) {
            final String v = r.value();
            if (v != null && v.matches("[sw][0-9]+")) {
                final long n = Long.parseLong(v.substring(1));
                if (v.charAt(0) == 's') {
                    if (stream != null) stream.cancel();
                    stream = context().schedule(ms(n), PunctuationType.STREAM_TIME, ts -> fire(v, ts));
                } else {
                    if (wall != null) wall.cancel();
                    wall = context().schedule(ms(n), PunctuationType.WALL_CLOCK_TIME, ts -> fire(v, ts));
                }
            } else if ("stop".equals(v)) {
                if (stream != null) stream.cancel();
                if (wall != null) wall.cancel();
            } else {
                context().forward(r);
            }
        }
        void fire(final String v, final long ts) {
            x.add(v + " " + ts);
            context().forward(new Record<>("tick", v + " " + ts, ts));
        }
    }

    static final class Nested extends P<String, String> {
        final List<String> x;
        Cancellable outer;
        int fired;
        int walls;
        Nested(final List<String> x) { this.x = x; }
        @Override public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            outer = context.schedule(ms(40), PunctuationType.STREAM_TIME, this::outer);
            context.schedule(ms(100), PunctuationType.WALL_CLOCK_TIME, ts -> {
                x.add("wall " + ts);
                if (++walls == 4) outer.cancel();
            });
        }
        void outer(final long ts) {
            tell("outer " + ts, ts);
            if (++fired > 3) return;
            final int i = fired;
            final int[] inner = {0};
            final Cancellable[] self = {null};
            self[0] = context().schedule(ms(10L * i), PunctuationType.STREAM_TIME, at -> {
                tell("inner" + i + " " + at, at);
                if (++inner[0] == 2) self[0].cancel();
            });
        }
        void tell(final String text, final long ts) {
            x.add(text);
            context().forward(new Record<>("p", text, ts));
        }
        @Override public void process(final Record<String, String> r) {
            out(r, t(r.value()) + "@" + context().currentStreamTimeMs() + "/" + context().currentSystemTimeMs());
        }
    }

    static final class Router extends P<Long, Long> {
        @Override public void process(final Record<String, Long> r) {
            if (r.value() == null) context().forward(r);
            else context().forward(r, r.value() % 2 == 0 ? "evens" : "odds");
        }
    }

    static final class WordKeys extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            int i = 0;
            for (final String word : words(r.value())) context().forward(r.withKey(word).withValue(t(r.key())).withTimestamp(r.timestamp() + i++));
        }
    }

    static final class Difference implements FixedKeyProcessor<String, Long, Long> {
        FixedKeyProcessorContext<String, Long> context;
        KeyValueStore<String, Long> last;
        @Override public void init(final FixedKeyProcessorContext<String, Long> context) {
            this.context = context;
            last = context.getStateStore("last");
        }
        @Override public void process(final FixedKeyRecord<String, Long> r) {
            final Long before = last.get(r.key());
            final long difference = r.value() - (before == null ? 0 : before);
            context.forward(r.withValue(difference));
            context.forward(r.withValue(difference).withTimestamp(r.timestamp() + 1000));
            last.put(r.key(), r.value());
        }
    }

    static final class Spread implements FixedKeyProcessor<String, String, String> {
        FixedKeyProcessorContext<String, String> context;
        @Override public void init(final FixedKeyProcessorContext<String, String> context) { this.context = context; }
        @Override public void process(final FixedKeyRecord<String, String> r) {
            long i = 0;
            for (final String word : words(r.value())) context.forward(r.withValue(word).withTimestamp(r.timestamp() + 20 * i++));
        }
    }

    static final class Facts implements Processor<String, String, Void, Void> {
        KeyValueStore<String, String> glo;
        @Override public void init(final ProcessorContext<Void, Void> context) { glo = context.getStateStore("glo"); }
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null) return;
            final String key = r.key().toUpperCase(java.util.Locale.ROOT);
            final String old = glo.get(key);
            glo.put(key, r.value() == null ? null : r.value() + "/" + (old == null ? "none" : old));
        }
    }

    static final class Ask extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null) return;
            final KeyValueStore<String, String> glo = context().getStateStore("glo");
            final String found = ((ReadOnlyKeyValueStore<String, Object>) (Object) glo).get(r.key().toUpperCase(java.util.Locale.ROOT)) instanceof String s ? s : null;
            out(r, t(r.value()) + "+" + (found == null ? "none" : found));
        }
    }

    static final class LowFirst extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null) return;
            final WindowStore<String, String> win = context().getStateStore("win");
            win.put(r.key(), r.value(), r.timestamp() - r.timestamp() % 100);
            context().forward(r);
        }
    }

    static final class LowSecond extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null) return;
            final WindowStore<String, String> win = context().getStateStore("win");
            final KeyValueStore<String, Long> n = context().getStateStore("n");
            final String found = win.fetch(r.key(), r.timestamp() - r.timestamp() % 100);
            final Long before = n.get(r.key());
            n.put(r.key(), before == null ? 1 : before + 1);
            out(r, t(r.value()) + "/" + (found == null ? "none" : found) + "/" + n.get(r.key()));
        }
    }

    static final class Counted extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            final KeyValueStore<String, Long> c = context().getStateStore("c");
            final Long before = c.get(t(r.key()));
            c.put(t(r.key()), before == null ? 1 : before + 1);
            out(r, t(r.value()) + c.get(t(r.key())));
        }
    }

    static final class Hold extends P<String, String> {
        KeyValueStore<String, String> held;
        @Override public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            held = context.getStateStore("held");
            context.schedule(ms(60), PunctuationType.STREAM_TIME, ts -> {
                try (var rows = held.all()) {
                    while (rows.hasNext()) {
                        final var row = rows.next();
                        context.forward(new Record<>(row.key, row.value, ts));
                        held.delete(row.key);
                    }
                }
            });
        }
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null) return;
            final String old = held.get(r.key());
            held.put(r.key(), (old == null ? "" : old) + t(r.value()) + ",");
        }
    }

    static final class Beat extends P<String, String> {
        int n;
        @Override public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            context.schedule(ms(30), PunctuationType.STREAM_TIME, ts -> context.forward(new Record<>("beat", "" + n, ts)));
        }
        @Override public void process(final Record<String, String> r) {
            n++;
            context().forward(r);
        }
    }

    static final class LastValues extends P<String, String> {
        final Duration byStream;
        final Duration byWall;
        LastValues(final Duration byStream, final Duration byWall) { this.byStream = byStream; this.byWall = byWall; }
        @Override public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            context.schedule(byStream, PunctuationType.STREAM_TIME, this::all);
            context.schedule(byWall, PunctuationType.WALL_CLOCK_TIME, this::all);
        }
        void all(final long ts) {
            final KeyValueStore<String, String> last = context().getStateStore("last");
            try (var rows = last.all()) {
                while (rows.hasNext()) { final var row = rows.next(); context().forward(new Record<>(row.key, row.value, ts)); }
            }
        }
        @Override public void process(final Record<String, String> r) {
            final KeyValueStore<String, String> last = context().getStateStore("last");
            if (r.key() != null) last.put(r.key(), r.value());
        }
    }

    static final class Boom extends P<String, String> {
        final List<String> x;
        int s;
        int w;
        Boom(final List<String> x) { this.x = x; }
        @Override public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            context.schedule(ms(20), PunctuationType.STREAM_TIME, ts -> fire("s", ++s, ts));
            context.schedule(ms(50), PunctuationType.WALL_CLOCK_TIME, ts -> fire("w", ++w, ts));
        }
        void fire(final String name, final int n, final long ts) {
            x.add(name + n + " " + ts);
            context().forward(new Record<>(name, "a" + n, ts));
            if (n % 3 == 0) throw new IllegalStateException(name + n);
            context().forward(new Record<>(name, "b" + n, ts));
        }
        @Override public void process(final Record<String, String> r) {
            if ("boom".equals(r.value())) throw new IllegalStateException("boom");
            context().forward(r);
        }
    }

    static final class Fan extends P<Long, Long> {
        final List<String> x;
        Fan(final List<String> x) { this.x = x; }
        @Override public void process(final Record<String, Long> r) {
            for (long i = 0; i < 3; i++) out(r, r.value() + i);
            x.add("fan done");
        }
    }

    static final class Deep extends P<Long, Long> {
        final List<String> x;
        Deep(final List<String> x) { this.x = x; }
        @Override public void process(final Record<String, Long> r) {
            out(r, Math.floorDiv(10L, r.value() - 7));
            x.add("deep done");
        }
    }

    static final class PartitionTime implements org.apache.kafka.streams.processor.TimestampExtractor {
        @Override public long extract(final org.apache.kafka.clients.consumer.ConsumerRecord<Object, Object> r, final long partitionTime) {
            final String v = (String) r.value();
            final long ts = v != null && v.matches(".*:[0-9]+") ? Long.parseLong(v.substring(v.lastIndexOf(':') + 1)) : -1;
            if (ts >= 0) return ts;
            if (partitionTime < 0) throw new org.apache.kafka.streams.errors.StreamsException("no partition time");
            return partitionTime;
        }
    }

    static final class Stamp extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            out(r, t(r.value()) + "@" + r.timestamp() + "/" + context().currentStreamTimeMs());
        }
    }

    static final class StampLong extends P<Long, String> {
        @Override public void process(final Record<String, Long> r) {
            out(r, r.timestamp() + "/" + context().currentStreamTimeMs());
        }
    }

    static final class Ticks extends P<Long, String> {
        final List<String> x;
        Ticks(final List<String> x) { this.x = x; }
        @Override public void init(final ProcessorContext<String, String> context) {
            super.init(context);
            context.schedule(ms(50), PunctuationType.STREAM_TIME, ts -> x.add("p " + ts));
        }
        @Override public void process(final Record<String, Long> r) {
            out(r, "" + context().currentStreamTimeMs());
        }
    }

    static final class Backwards extends P<Long, Long> {
        @Override public void process(final Record<String, Long> r) {
            context().forward(r.withTimestamp(Math.max(0, 1000 - r.timestamp())));
        }
    }

    static final class Dedup extends P<String, String> {
        @Override public void process(final Record<String, String> r) {
            if (r.key() == null || r.value() == null) return;
            final WindowStore<String, String> seen = context().getStateStore("seen");
            final boolean known;
            try (var rows = seen.fetch(r.key() + r.value(), r.timestamp() - 30, r.timestamp() + 30)) { known = rows.hasNext(); }
            if (!known) context().forward(r);
            seen.put(r.key() + r.value(), "1", r.timestamp());
        }
    }
}
