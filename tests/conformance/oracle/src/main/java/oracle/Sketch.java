package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.SESSION;
import static oracle.Harness.STRING;
import static oracle.Harness.ms;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.RecordContext;
import org.apache.kafka.streams.processor.TopicNameExtractor;
import org.apache.kafka.streams.state.*;

/**
 * The shorthand in which the topologies of {@link WindowsAndMore} are written. Lambdas take (k, v); t() writes null as
 * the text null. Topics read "role name key value": &gt; a source, &lt; a sink, * both; s a string, l a long, w50 windows
 * of 50 ms, x sessions. In scenarios "topic key value ts" is an input, "-" a null, "!text" a raw value, "+ ms" an advance
 * of the wall clock.
 */
final class Sketch {
    private Sketch() {}

    static final Serde<String> S = Serdes.String();
    static final Serde<Long> L = Serdes.Long();
    static final Consumed<String, String> SS = Consumed.with(S, S);
    static final Consumed<String, Long> SL = Consumed.with(S, L);
    static final Map<String, Object> EMIT0 = Map.of("__emit.interval.ms.kstreams.windowed.aggregation__", 0);
    static final Map<String, Object> JOIN0 =
        Map.of("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0);
    static final Map<String, Object> CONTINUE = Map.of(
        "processing.exception.handler", "org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler");

    static final Map<String, Object> OPTIMIZED = Map.of("topology.optimization", "all");

    private static Harness.Registry registry;
    private static final Map<String, Harness.Definition> DEFINITIONS = new HashMap<>();

    static void begin(final Harness.Registry given) {
        registry = given;
    }

    static Harness.Definition definition(final String name) {
        return DEFINITIONS.get(name);
    }

    static void add(
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

    static Harness.Type type(final String text) {
        return switch (text.charAt(0)) {
            case 'w' -> Harness.timeWindowed(Long.parseLong(text.substring(1)));
            case 'x' -> SESSION;
            case 'l' -> LONG;
            default -> STRING;
        };
    }

    static String[] topics(final String... topics) {
        return topics;
    }

    static Map<String, Object> cache(final int bytes) {
        return Map.of("statestore.cache.max.bytes", bytes);
    }

    static Map<String, Object> plus(final Map<String, Object> a, final Map<String, Object> b) {
        final Map<String, Object> both = new HashMap<>(a);
        both.putAll(b);
        return both;
    }

    static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> kv(final String name, final Serde<V> value) {
        return Materialized.<String, V, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(S).withValueSerde(value);
    }

    static <V> Materialized<String, V, WindowStore<Bytes, byte[]>> win(final String name, final Serde<V> value) {
        return Materialized.<String, V, WindowStore<Bytes, byte[]>>as(name).withKeySerde(S).withValueSerde(value);
    }

    static <V> Materialized<String, V, SessionStore<Bytes, byte[]>> ses(final String name, final Serde<V> value) {
        return Materialized.<String, V, SessionStore<Bytes, byte[]>>as(name).withKeySerde(S).withValueSerde(value);
    }

    static String t(final Object value) {
        return value == null ? "null" : value.toString();
    }

    static List<String> words(final String value) {
        return value == null ? List.of() : List.of(value.split("_"));
    }

    /** The stream `in` with each word i of its values sent on at timestamp + 20 * i. */
    static KStream<String, String> spread(final StreamsBuilder b) {
        return b.stream("in", SS).processValues(OwnProcessors.Spread::new);
    }

    static Inputs feed() {
        return Inputs.of().keys("in", "a", "b", "c").length(20, 27).advances(3, 1500);
    }

    /** Times hours apart, so that segments expire. */
    static Inputs big() {
        return Inputs.of().step(40_000).jumps(8, 3_600_000).late(35, 500_000).length(21, 28);
    }

    static Inputs.Values letters() {
        return (random, n) -> "" + "xyz".charAt(random.nextInt(3)) + n;
    }

    static Inputs.Values longs(final int most) {
        return (random, n) -> (long) random.nextInt(most + 1);
    }

    static Inputs.Values oneOf(final String... choices) {
        return (random, n) -> choices[random.nextInt(choices.length)];
    }

    static Inputs.Values phrase(final String... choices) {
        final String[] from = choices.length == 0 ? new String[] {"x", "y", "z", "w"} : choices;
        return (random, n) -> {
            final StringJoiner all = new StringJoiner("_");
            for (int i = random.nextInt(5); i >= 0; i--) all.add(from[random.nextInt(from.length)]);
            return all.toString();
        };
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
}
