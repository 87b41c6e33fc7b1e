import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The topologies of five.py, and some of tests/backfill, as applications of Kafka Streams, all in one process, which
 * ends in order with its standard input or on SIGTERM. It says on standard output what each of them is doing.
 *
 * <pre>
 * Original describe TOPOLOGY OUT IN...
 * Original run BOOTSTRAP STATE-DIR APPLICATION-ID:TOPOLOGY:OUT:IN[:IN]...
 * </pre>
 */
public final class Original {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> NUMBER = Serdes.Long();
    private static final Duration WINDOW = Duration.ofSeconds(10);

    private Original() {}

    public static void main(final String[] words) throws Exception {
        switch (words[0]) {
            case "describe":
                System.out.print(topology(words[1], words[2], from(words, 3)).describe());
                break;
            case "run":
                run(words[1], words[2], from(words, 3));
                break;
            default:
                throw new IllegalArgumentException("describe or run, not " + words[0]);
        }
    }

    private static List<String> from(final String[] words, final int first) {
        return Arrays.asList(words).subList(first, words.length);
    }

    static Topology topology(final String name, final String out, final List<String> in) {
        final StreamsBuilder builder = new StreamsBuilder();
        final Consumed<String, String> text = Consumed.with(TEXT, TEXT);
        final Grouped<String, String> grouped = Grouped.with(TEXT, TEXT);
        final Produced<String, Long> numbers = Produced.with(TEXT, NUMBER);
        if (name.startsWith("backfill-tables-") || name.startsWith("backfill-foreign-")) {
            summed(members(name, builder, in, text), grouped).to(out, numbers);
            return builder.build();
        }
        final KStream<String, String> stream = builder.stream(in.get(0), text);
        switch (name) {
            case "stateless":
                stream.filter((key, value) -> value.length() > 2)
                    .flatMapValues(value -> List.of(value.split(" ")))
                    .mapValues(word -> word.toUpperCase())
                    .to(out, Produced.with(TEXT, TEXT));
                break;
            case "count":
                stream.flatMapValues(value -> List.of(value.split(" ")))
                    .groupBy((key, word) -> word, Grouped.with(TEXT, TEXT))
                    .count()
                    .toStream()
                    .to(out, Produced.with(TEXT, NUMBER));
                break;
            case "window":
                stream.groupByKey(Grouped.with(TEXT, TEXT))
                    .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, Duration.ofSeconds(5)))
                    .count()
                    .toStream()
                    .to(out, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW.toMillis()), NUMBER));
                break;
            case "closing":
                stream.groupByKey(Grouped.with(TEXT, TEXT))
                    .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, Duration.ofSeconds(5)))
                    .emitStrategy(EmitStrategy.onWindowClose())
                    .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>with(TEXT, NUMBER)
                        .withRetention(Duration.ofMinutes(2)))
                    .toStream()
                    .to(out, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW.toMillis()), NUMBER));
                break;
            case "stream-table":
                stream.join(builder.table(in.get(1), text), (line, user) -> line + "/" + user, Joined.with(TEXT, TEXT, TEXT))
                    .to(out, Produced.with(TEXT, TEXT));
                break;
            case "versioned":
                stream.join(
                        builder.table(in.get(1), text, Materialized.<String, String>as(
                                Stores.persistentVersionedKeyValueStore("versions", Duration.ofMinutes(1)))
                            .withKeySerde(TEXT).withValueSerde(TEXT)),
                        (line, user) -> line + "/" + user, Joined.with(TEXT, TEXT, TEXT))
                    .to(out, Produced.with(TEXT, TEXT));
                break;
            case "graceful":
                stream.join(
                        builder.table(in.get(1), text, Materialized.<String, String>as(
                                Stores.persistentVersionedKeyValueStore("versions", Duration.ofMinutes(1)))
                            .withKeySerde(TEXT).withValueSerde(TEXT)),
                        (line, user) -> line + "/" + user,
                        Joined.with(TEXT, TEXT, TEXT).withGracePeriod(Duration.ofSeconds(30)))
                    .to(out, Produced.with(TEXT, TEXT));
                break;
            case "suppressed":
                stream.groupByKey(Grouped.with(TEXT, TEXT))
                    .count()
                    .suppress(Suppressed.untilTimeLimit(Duration.ofHours(1), Suppressed.BufferConfig.unbounded()))
                    .toStream()
                    .to(out, Produced.with(TEXT, NUMBER));
                break;
            case "left-join":
                final JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(5), Duration.ofSeconds(2));
                stream.leftJoin(builder.stream(in.get(1), text), (left, right) -> left + "/" + right, near,
                        StreamJoined.with(TEXT, TEXT, TEXT))
                    .to(out, Produced.with(TEXT, TEXT));
                break;
            case "backfill-count":
                stream.groupBy((key, value) -> word(value, 1), grouped).count().toStream().to(out, numbers);
                break;
            case "backfill-count-behind-two":
                stream.selectKey((key, value) -> word(value, 1))
                    .repartition(Repartitioned.with(TEXT, TEXT))
                    .groupBy((city, value) -> region(city), grouped)
                    .count()
                    .toStream()
                    .to(out, numbers);
                break;
            case "backfill-count-regrouped":
                stream.groupBy((key, value) -> word(value, 1), grouped)
                    .count()
                    .groupBy((city, count) -> KeyValue.pair(region(city), count), Grouped.with(TEXT, NUMBER))
                    .aggregate(() -> 0L, (key, count, sum) -> sum + count, (key, count, sum) -> sum - count,
                        Materialized.with(TEXT, NUMBER))
                    .toStream()
                    .to(out, numbers);
                break;
            default:
                throw new IllegalArgumentException("there is no topology " + name);
        }
        return builder.build();
    }

    // ---- the topologies of tests/backfill whose final results do not depend on which task came first: their values are
    // `number city amount …`.

    private static String word(final String value, final int at) {
        return value.split(" ")[at];
    }

    private static long amount(final String value) {
        return Long.parseLong(word(value, 2));
    }

    private static String region(final String city) {
        return "r" + Integer.parseInt(city.substring(1)) % 7;
    }

    /** The left value with the amounts of both, in the city of the left or of the right one. */
    private static String added(final String left, final String right, final String city) {
        return word(left, 0) + " " + city + " " + (amount(left) + amount(right));
    }

    private static KTable<String, String> members(final String name, final StreamsBuilder builder, final List<String> in,
                                                  final Consumed<String, String> text) {
        final Materialized<String, String, KeyValueStore<Bytes, byte[]>> kept = Materialized.with(TEXT, TEXT);
        final KTable<String, String> joined = builder.table(in.get(0), text)
            .join(builder.table(in.get(1), text), (left, right) -> added(left, right, word(left, 1)), kept);
        if (name.equals("backfill-tables-regrouped")) return joined;
        final KTable<String, String> places = builder.table(in.get(2), text);
        return joined.join(places, value -> word(value, 1), (left, right) -> added(left, right, word(right, 1)), kept);
    }

    private static KStream<String, Long> summed(final KTable<String, String> table, final Grouped<String, String> grouped) {
        return table.groupBy((key, value) -> KeyValue.pair(word(value, 1), value), grouped)
            .aggregate(() -> 0L, (key, value, sum) -> sum + amount(value), (key, value, sum) -> sum - amount(value),
                Materialized.with(TEXT, NUMBER))
            .toStream();
    }

    private static Properties settings(final String application, final String bootstrap, final String directory) {
        final Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "classic");
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        // Every update goes on, and with every record it is looked for what has closed: else clocks would decide.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        return settings;
    }

    private static void run(final String bootstrap, final String directory, final List<String> applications)
        throws Exception {
        final List<KafkaStreams> running = new ArrayList<>();
        for (final String application : applications) {
            final String[] words = application.split(":");
            final Topology topology = topology(words[1], words[2], from(words, 3));
            running.add(started(words[0], new KafkaStreams(topology, settings(words[0], bootstrap, directory))));
        }
        final CloseOptions leaving = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
            .withTimeout(Duration.ofSeconds(30));
        Runtime.getRuntime().addShutdownHook(new Thread(() ->
            running.parallelStream().forEach(streams -> streams.close(leaving))));
        while (System.in.read() >= 0) continue;
        System.exit(0);
    }

    private static KafkaStreams started(final String application, final KafkaStreams streams) {
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            System.out.println(application + " " + now);
            if (now == KafkaStreams.State.ERROR) Runtime.getRuntime().halt(1);
        });
        streams.start();
        return streams;
    }
}
