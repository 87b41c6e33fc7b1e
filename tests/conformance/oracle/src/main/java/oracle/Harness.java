package oracle;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * How an area of topologies is written: a class {@code oracle.X implements Harness.Area} whose {@code register} adds
 * definitions, run by {@code Main X <folder>}. A definition reads
 *
 * <pre>
 * r.add("name", "group", "description", "note", ...)          // group "Stream-stream joins" makes `dropped` advice
 *     .source("in", STRING, LONG).sink("out", timeWindowed(50), LONG)      // roles; both(...) for source+sink
 *     .config("topology.optimization", "all")                              // beyond the usual entries
 *     .dsl((builder, effects) -> { ... })                     // or .topology(effects -> new Topology()...)
 *     .scenario(in("in", "a", 1L, 10), in("in", "a", 2L, 5, "h", "text"), advance(100))      // seed 0
 *     .random(Inputs.of()...)                                 // seeds 1, 2 (and 0 without a scenario)
 *     .seeds(1, 2);                                           // not all three
 * </pre>
 *
 * `effects.add(text)` records an effect. Stores are found by themselves: every key-value, versioned, timestamped window
 * and session store with plain keys and values is written out, generated names too.
 */
public final class Harness {
    private Harness() {}

    /** A group of topologies in one class. */
    public interface Area {
        void register(Registry registry);
    }

    /** A body in the DSL; what it makes is built with the definition's config. */
    public interface Dsl {
        void build(StreamsBuilder builder, List<String> effects);
    }

    /** A serde with the name it has in a trace; windowSize is null unless keys are time windows. */
    public record Type(String name, Serde<?> serde, Long windowSize) {}

    public static final Type STRING = new Type("string", Serdes.String(), null);
    public static final Type LONG = new Type("long", Serdes.Long(), null);

    public static Type timeWindowed(final long sizeMs) {
        return new Type("time-windowed<string>", WindowedSerdes.timeWindowedSerdeFrom(String.class, sizeMs), sizeMs);
    }

    public static final Type SESSION =
        new Type("session-windowed<string>", WindowedSerdes.sessionWindowedSerdeFrom(String.class), null);

    public record Topic(String role, Type key, Type value) {
        boolean isSource() {
            return role.contains("source");
        }

        boolean isSink() {
            return role.contains("sink");
        }
    }

    /** One step: an input, or an advance of the wall clock (topic null). Headers alternate names and texts. */
    public record Step(
        String topic, Object key, Object value, long ts, List<String> headers, byte[] raw, long advanceMs) {}

    public static Step in(
        final String topic, final Object key, final Object value, final long ts, final String... headers) {
        return new Step(topic, key, value, ts, List.of(headers), null, 0);
    }

    public static Step raw(final String topic, final Object key, final byte[] value, final long ts) {
        return new Step(topic, key, null, ts, List.of(), value, 0);
    }

    public static Step advance(final long ms) {
        return new Step(null, null, null, 0, List.of(), null, ms);
    }

    public static Duration ms(final long ms) {
        return Duration.ofMillis(ms);
    }

    /** One topology with its inputs. */
    public static final class Definition {
        final String name;
        final String group;
        final String description;
        final List<String> notes;
        final Map<String, Topic> topics = new LinkedHashMap<>();
        final Map<String, Object> config = new LinkedHashMap<>();
        BiFunction<Properties, List<String>, Topology> body;
        private List<Step> scenario;
        private Inputs inputs = Inputs.of();
        int[] seeds = {0, 1, 2};

        Definition(final String name, final String group, final String description, final List<String> notes) {
            this.name = name;
            this.group = group;
            this.description = description;
            this.notes = notes;
            config.put("application.id", "oracle");
            config.put("bootstrap.servers", "dummy:1234");
            config.put("statestore.cache.max.bytes", 0);
            config.put("default.key.serde", Serdes.StringSerde.class.getName());
            config.put("default.value.serde", Serdes.StringSerde.class.getName());
        }

        public Definition source(final String topic, final Type key, final Type value) {
            topics.put(topic, new Topic("source", key, value));
            return this;
        }

        public Definition sink(final String topic, final Type key, final Type value) {
            topics.put(topic, new Topic("sink", key, value));
            return this;
        }

        public Definition both(final String topic, final Type key, final Type value) {
            topics.put(topic, new Topic("source+sink", key, value));
            return this;
        }

        public Definition config(final String key, final Object value) {
            config.put(key, value);
            return this;
        }

        public Definition dsl(final Dsl dsl) {
            body = (properties, effects) -> {
                final StreamsBuilder builder = new StreamsBuilder();
                dsl.build(builder, effects);
                return builder.build(properties);
            };
            return this;
        }

        public Definition topology(final Function<List<String>, Topology> made) {
            body = (properties, effects) -> made.apply(effects);
            return this;
        }

        public Definition scenario(final Step... steps) {
            scenario = List.of(steps);
            return this;
        }

        public Definition random(final Inputs inputs) {
            this.inputs = inputs;
            return this;
        }

        /** Write only these seeds. */
        public Definition seeds(final int... seeds) {
            this.seeds = seeds;
            return this;
        }

        /** Make random inputs this long, unless they are longer by intent. */
        Definition length(final int least, final int most) {
            inputs.lengthUnlessGiven(least, most);
            return this;
        }

        boolean hasScenario() {
            return scenario != null;
        }

        List<Step> steps(final int seed) {
            return seed == 0 && scenario != null ? scenario : inputs.steps(this, seed);
        }
    }

    /** The definitions of an area, in order. */
    public static final class Registry {
        private final Map<String, Definition> definitions = new LinkedHashMap<>();

        public Definition add(
            final String name, final String group, final String description, final String... notes) {
            final Definition definition = new Definition(name, group, description, List.of(notes));
            if (definitions.put(name, definition) != null)
                throw new IllegalArgumentException(name + " is registered twice");
            return definition;
        }

        List<Definition> definitions() {
            return new ArrayList<>(definitions.values());
        }
    }
}
