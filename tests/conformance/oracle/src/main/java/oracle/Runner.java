package oracle;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.TimestampedWindowStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.test.TestRecord;

/** Runs a definition's topology through Kafka Streams' own test driver and writes the trace. */
final class Runner {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Runner() {}

    /** Read the steps of a trace file. */
    static List<Harness.Step> steps(final Path file) throws IOException {
        final List<Harness.Step> steps = new ArrayList<>();
        for (final JsonNode step : JSON.readTree(file.toFile()).get("steps")) {
            if (step.has("advance_wall_clock_ms")) {
                steps.add(Harness.advance(step.get("advance_wall_clock_ms").asLong()));
                continue;
            }
            final JsonNode in = step.get("in");
            final List<String> headers = new ArrayList<>();
            if (in.has("headers"))
                for (final JsonNode pair : in.get("headers")) {
                    headers.add(pair.get(0).asText());
                    headers.add(pair.get(1).asText());
                }
            final byte[] raw = in.has("value_base64") ? Base64.getDecoder().decode(in.get("value_base64").asText()) : null;
            steps.add(new Harness.Step(in.get("topic").asText(), scalar(in.get("key")), scalar(in.get("value")),
                in.get("ts").asLong(), headers, raw, 0));
        }
        return steps;
    }

    private static Object scalar(final JsonNode node) {
        return node.isNull() ? null : node.isNumber() ? (Object) node.asLong() : node.asText();
    }

    /** Return the text of the trace that these steps give. */
    static String trace(final Harness.Definition definition, final int seed, final List<Harness.Step> steps)
        throws IOException {
        final Path state = Files.createTempDirectory("oracle");
        final Properties properties = new Properties();
        properties.putAll(definition.config);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        final List<String> effects = new ArrayList<>();
        final Topology topology = definition.body.apply(properties, effects);
        final Map<String, Object> body = new LinkedHashMap<>();
        body.put("topology", definition.name);
        body.put("group", definition.group);
        body.put("description", definition.description);
        body.put("notes", definition.notes);
        body.put("seed", seed);
        body.put("kafka_version", "4.3.1");
        body.put("config", definition.config);
        body.put("topics", topics(definition));
        final TopologyTestDriver driver = new TopologyTestDriver(topology, properties, Instant.EPOCH);
        boolean failed = false;
        try {
            final Map<String, TestOutputTopic<?, ?>> outputs = new TreeMap<>();
            definition.topics.forEach((name, topic) -> {
                if (topic.isSink())
                    outputs.put(name, driver.createOutputTopic(
                        name, topic.key().serde().deserializer(), topic.value().serde().deserializer()));
            });
            final List<Map<String, Object>> done = new ArrayList<>();
            long dropped = 0;
            for (final Harness.Step step : steps) {
                final Map<String, Object> written = written(step);
                String error = null;
                try {
                    take(driver, definition, step);
                } catch (final RuntimeException thrown) {
                    Throwable root = thrown;
                    while (root.getCause() != null) root = root.getCause();
                    error = thrown.getClass().getSimpleName() + ": " + root.getClass().getSimpleName();
                }
                final List<Object> out = new ArrayList<>();
                outputs.forEach((name, output) -> output.readRecordsToList().forEach(r -> out.add(written(name, r))));
                written.put("out", out);
                if (!effects.isEmpty()) written.put("effects", List.copyOf(effects));
                effects.clear();
                final long now = dropped(driver);
                if (now > dropped) written.put("dropped", now - dropped);
                dropped = now;
                done.add(written);
                if (error != null) {
                    written.put("error", error);
                    failed = true;
                    break;
                }
            }
            body.put("steps", done);
            stores(body, failed ? Map.of() : new TreeMap<>(driver.getAllStateStores()), driver, steps);
            body.put("all_store_names", new TreeSet<>(driver.getAllStateStores().keySet()));
            final TreeSet<String> internal = new TreeSet<>(driver.producedTopicNames());
            internal.removeAll(definition.topics.keySet());
            body.put("internal_topics", internal);
            body.put("metrics", Map.of("dropped_records_total", dropped));
            body.put("describe", topology.describe().toString());
        } finally {
            close(driver, failed);
            delete(state);
        }
        return text(body);
    }

    private static void close(final TopologyTestDriver driver, final boolean failed) {
        try {
            driver.close();
        } catch (final RuntimeException thrown) {
            if (!failed) throw thrown;
        }
    }

    private static void delete(final Path folder) throws IOException {
        try (Stream<Path> paths = Files.walk(folder)) {
            for (final Path path : paths.sorted(Comparator.reverseOrder()).toList()) Files.delete(path);
        }
    }

    private static Map<String, Object> topics(final Harness.Definition definition) {
        final Map<String, Object> topics = new LinkedHashMap<>();
        definition.topics.forEach((name, topic) -> {
            final Map<String, Object> described = new LinkedHashMap<>();
            described.put("role", topic.role());
            described.put("key", topic.key().name());
            described.put("value", topic.value().name());
            if (topic.key().windowSize() != null) described.put("key_window_size_ms", topic.key().windowSize());
            topics.put(name, described);
        });
        return topics;
    }

    @SuppressWarnings("unchecked")
    private static void take(
        final TopologyTestDriver driver, final Harness.Definition definition, final Harness.Step step) {
        if (step.topic() == null) {
            driver.advanceWallClockTime(Duration.ofMillis(step.advanceMs()));
            return;
        }
        final Harness.Topic topic = definition.topics.get(step.topic());
        final Serializer<Object> key = (Serializer<Object>) topic.key().serde().serializer();
        final Serializer<Object> value = step.raw() == null
            ? (Serializer<Object>) topic.value().serde().serializer()
            : (Serializer<Object>) (Serializer<?>) new ByteArraySerializer();
        final Headers headers = new RecordHeaders();
        for (int i = 0; i < step.headers().size(); i += 2)
            headers.add(step.headers().get(i), step.headers().get(i + 1).getBytes(StandardCharsets.UTF_8));
        driver.createInputTopic(step.topic(), key, value).pipeInput(new TestRecord<>(
            step.key(), step.raw() == null ? step.value() : step.raw(), headers, Instant.ofEpochMilli(step.ts())));
    }

    private static Map<String, Object> written(final Harness.Step step) {
        final Map<String, Object> written = new LinkedHashMap<>();
        if (step.topic() == null) {
            written.put("advance_wall_clock_ms", step.advanceMs());
            return written;
        }
        final Map<String, Object> in = new LinkedHashMap<>();
        in.put("topic", step.topic());
        in.put("key", step.key());
        in.put("value", step.value());
        in.put("ts", step.ts());
        if (!step.headers().isEmpty()) {
            final List<List<String>> pairs = new ArrayList<>();
            for (int i = 0; i < step.headers().size(); i += 2)
                pairs.add(List.of(step.headers().get(i), step.headers().get(i + 1)));
            in.put("headers", pairs);
        }
        if (step.raw() != null) in.put("value_base64", Base64.getEncoder().encodeToString(step.raw()));
        written.put("in", in);
        return written;
    }

    private static Map<String, Object> written(final String topic, final TestRecord<?, ?> record) {
        final Map<String, Object> written = new LinkedHashMap<>();
        written.put("topic", topic);
        written.put("key", key(record.key()));
        written.put("value", record.value());
        written.put("ts", record.timestamp());
        final List<List<Object>> pairs = new ArrayList<>();
        for (final Header header : record.headers()) {
            final List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8));
            pairs.add(pair);
        }
        if (!pairs.isEmpty()) written.put("headers", pairs);
        return written;
    }

    private static Object key(final Object key) {
        if (!(key instanceof Windowed<?> windowed)) return key;
        final Map<String, Object> written = new LinkedHashMap<>();
        written.put("key", windowed.key());
        written.put("start", windowed.window().start());
        written.put("end", windowed.window().end());
        return written;
    }

    private static long dropped(final TopologyTestDriver driver) {
        return driver.metrics().entrySet().stream()
            .filter(entry -> entry.getKey().name().equals("dropped-records-total"))
            .mapToLong(entry -> ((Double) entry.getValue().metricValue()).longValue())
            .sum();
    }

    /** One row of a store; order is that of key, start, end. */
    private record Row(Object key, Object value, Long ts) {
        private static Comparable<Object> comparable(final Object key) {
            @SuppressWarnings("unchecked")
            final Comparable<Object> inner = (Comparable<Object>) (key instanceof Windowed<?> w ? w.key() : key);
            return inner;
        }

        static int order(final Row left, final Row right) {
            final int byKey = comparable(left.key).compareTo(comparable(right.key));
            if (byKey != 0 || !(left.key instanceof Windowed<?> a) || !(right.key instanceof Windowed<?> b))
                return byKey;
            final int byStart = Long.compare(a.window().start(), b.window().start());
            return byStart != 0 ? byStart : Long.compare(a.window().end(), b.window().end());
        }
    }

    @SuppressWarnings("unchecked")
    private static void stores(
        final Map<String, Object> body,
        final Map<String, StateStore> found,
        final TopologyTestDriver driver,
        final List<Harness.Step> steps) {
        final Map<String, Object> stores = new LinkedHashMap<>();
        final Map<String, Object> timestamps = new LinkedHashMap<>();
        final Map<String, Object> kinds = new LinkedHashMap<>();
        final Map<String, Object> versions = new LinkedHashMap<>();
        final TreeSet<Object> keys = new TreeSet<>(Comparator.comparing(Object::toString));
        final TreeSet<Long> times = new TreeSet<>();
        for (final Harness.Step step : steps) {
            if (step.topic() != null) times.add(step.ts());
            if (step.key() != null) keys.add(step.key());
        }
        found.forEach((name, store) -> {
            // Joins' own stores: their rows are no user's.
            if (name.matches(".*(subscription-store|SUBSCRIPTION-STATE-STORE.*|OUTERSHARED.*|-shared-join-store)")) return;
            final List<Row> rows = new ArrayList<>();
            final String kind;
            if (store instanceof VersionedKeyValueStore) {
                kind = "versioned";
                final VersionedKeyValueStore<Object, Object> versioned = driver.getVersionedKeyValueStore(name);
                final List<Object> probes = new ArrayList<>();
                for (final Object key : keys(driver, name, Harness.STRING, keys)) {
                    final VersionedRecord<Object> latest = versioned.get(key);
                    if (latest != null) rows.add(new Row(key, latest.value(), latest.timestamp()));
                    probes(versioned, key, times, probes);
                }
                versions.put(name, probes);
            } else if (store instanceof TimestampedKeyValueStore) {
                kind = "kv";
                collect(((TimestampedKeyValueStore<Object, Object>) store).all(), rows);
            } else if (store instanceof TimestampedWindowStore) {
                kind = "window";
                collect(((TimestampedWindowStore<Object, Object>) store).all(), rows);
            } else if (store instanceof SessionStore) {
                kind = "session";
                final SessionStore<Object, Object> sessions = (SessionStore<Object, Object>) store;
                for (final Object key : keys(driver, name, Harness.SESSION, keys)) collect(sessions.fetch(key), rows);
            } else if (store instanceof KeyValueStore) {
                kind = "plain_kv";
                collect(((KeyValueStore<Object, Object>) store).all(), rows);
            } else {
                return;
            }
            rows.sort(Row::order);
            final List<Object> pairs = new ArrayList<>();
            final List<Long> stamps = new ArrayList<>();
            for (final Row row : rows) {
                final List<Object> pair = new ArrayList<>();
                pair.add(key(row.key));
                pair.add(row.value);
                pairs.add(pair);
                stamps.add(row.ts);
            }
            stores.put(name, pairs);
            timestamps.put(name, stamps);
            kinds.put(name, kind);
        });
        body.put("stores", stores);
        body.put("store_ts", timestamps);
        body.put("store_kinds", kinds);
        if (!versions.isEmpty()) body.put("store_versions", versions);
    }

    /** The keys a store may hold: those of the inputs, and those written to its changelog. */
    private static TreeSet<Object> keys(
        final TopologyTestDriver driver, final String store, final Harness.Type type, final TreeSet<Object> inputs) {
        final TreeSet<Object> keys = new TreeSet<>(inputs);
        final String changelog = "oracle-" + store + "-changelog";
        if (driver.producedTopicNames().contains(changelog))
            driver.createOutputTopic(changelog, type.serde().deserializer(), new ByteArrayDeserializer())
                .readRecordsToList()
                .forEach(record -> keys.add(record.key() instanceof Windowed<?> windowed ? windowed.key() : record.key()));
        return keys;
    }

    private static void collect(final KeyValueIterator<?, ?> found, final List<Row> rows) {
        try (KeyValueIterator<?, ?> iterator = found) {
            while (iterator.hasNext()) {
                final KeyValue<?, ?> row = iterator.next();
                rows.add(row.value instanceof ValueAndTimestamp<?> stamped
                    ? new Row(row.key, stamped.value(), stamped.timestamp())
                    : new Row(row.key, row.value, null));
            }
        }
    }

    private static void probes(
        final VersionedKeyValueStore<Object, Object> store,
        final Object key,
        final TreeSet<Long> times,
        final List<Object> probes) {
        Map<String, Object> last = null;
        for (final long time : times) {
            final VersionedRecord<Object> record = store.get(key, time);
            final Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("value", record == null ? null : record.value());
            answer.put("ts", record == null ? null : record.timestamp());
            answer.put("valid_to", record == null || record.validTo().isEmpty() ? null : record.validTo().get());
            if (answer.equals(last)) continue;
            last = answer;
            final Map<String, Object> probe = new LinkedHashMap<>();
            probe.put("key", key);
            probe.put("as_of", time);
            probe.putAll(answer);
            probes.add(probe);
        }
    }

    /** Write one key per line, and one step per line. */
    private static String text(final Map<String, Object> body) throws JsonProcessingException {
        final List<String> lines = new ArrayList<>();
        for (final Map.Entry<String, Object> entry : body.entrySet()) {
            final String name = JSON.writeValueAsString(entry.getKey());
            if (entry.getKey().equals("steps")) {
                final List<String> steps = new ArrayList<>();
                for (final Object step : (List<?>) entry.getValue()) steps.add(JSON.writeValueAsString(step));
                lines.add(name + ":[\n" + String.join(",\n", steps) + "\n]");
            } else {
                lines.add(name + ":" + JSON.writeValueAsString(entry.getValue()));
            }
        }
        return "{\n" + String.join(",\n", lines) + "\n}\n";
    }
}
