package oracle;

import static oracle.Harness.STRING;
import static oracle.Harness.ms;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueJoinerWithKey;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** What the topologies of joins and tables share. */
final class Words {
    static final String EMIT_INTERVAL = "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__";
    static final String OPTIMIZE = "topology.optimization";

    static final JoinWindows WINDOWS = JoinWindows.ofTimeDifferenceAndGrace(ms(10), ms(15));
    static final ValueJoiner<Object, Object, String> PLUS = (left, right) -> left + "+" + right;
    static final ValueJoinerWithKey<Object, Object, Object, String> KEY_PLUS =
        (key, left, right) -> key + ":" + left + "+" + right;
    static final Aggregator<String, Object, String> DOTTED = (key, value, aggregate) -> tail(aggregate + "." + value);
    static final Aggregator<String, Object, String> ADD = (key, value, aggregate) -> tail(aggregate + "+(" + value + ")");
    static final Aggregator<String, Object, String> SUBTRACT =
        (key, value, aggregate) -> tail(aggregate + "-(" + value + ")");
    static final Reducer<String> COMMA = (aggregate, value) -> tail(aggregate + "," + value);
    static final Reducer<String> MINUS = (aggregate, value) -> tail(aggregate + "-" + value);
    /** The part of the value before the colon; null for a null value. */
    static final KeyValueMapper<String, String, String> TO_REFERENCE = (key, value) -> reference(value);

    private Words() {}

    /** The last 16 characters: aggregates that grow without end make long traces. */
    static String tail(final String text) {
        return text.substring(Math.max(0, text.length() - 16));
    }

    static String reference(final String value) {
        return value == null ? null : value.split(":")[0];
    }

    /** A foreign key: null where the value begins with n. */
    static String foreignKey(final String value) {
        return value.startsWith("n") ? null : reference(value);
    }

    static String last(final String value) {
        return value.substring(value.length() - 1);
    }

    static String first(final String value) {
        return value == null ? null : value.substring(0, 1);
    }

    /** Whether the last character is an even digit. */
    static boolean even(final String value) {
        return (value.charAt(value.length() - 1) - '0') % 2 == 0;
    }

    static KStream<String, String> stream(final StreamsBuilder builder, final String topic) {
        return builder.stream(topic);
    }

    static KTable<String, String> table(final StreamsBuilder builder, final String topic) {
        return builder.table(topic);
    }

    static KTable<String, String> table(final StreamsBuilder builder, final String topic, final String store) {
        return builder.table(topic, as(store));
    }

    static KTable<String, Long> longs(final StreamsBuilder builder, final String topic, final String store) {
        return builder.table(topic, Consumed.with(Serdes.String(), Serdes.Long()), as(store));
    }

    static KTable<String, String> versioned(
        final StreamsBuilder builder, final String topic, final String store, final long retentionMs) {
        return builder.table(topic, versioned(store, retentionMs));
    }

    static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> as(final String store) {
        return Materialized.as(store);
    }

    static <V> Materialized<String, V, KeyValueStore<Bytes, byte[]>> versioned(final String store, final long retentionMs) {
        return Materialized.as(Stores.persistentVersionedKeyValueStore(store, ms(retentionMs)));
    }

    static Produced<String, Long> longValues() {
        return Produced.with(Serdes.String(), Serdes.Long());
    }

    /** A definition with string topics: sources, then the sink `out`. */
    static Harness.Definition strings(
        final Harness.Registry registry, final String name, final String group, final String description,
        final String... sources) {
        final Harness.Definition definition = registry.add(name, group, description);
        for (final String source : sources) definition.source(source, STRING, STRING);
        return definition.sink("out", STRING, STRING);
    }
}
