import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.kstream.SessionWindowedDeserializer;
import org.apache.kafka.streams.kstream.TimeWindowedDeserializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.internals.SessionKeySchema;
import org.apache.kafka.streams.state.internals.WindowKeySchema;

/**
 * Prints the committed records of a topic as lines of JSON, decoded by Kafka Streams' own serdes: the keys of windowed
 * results (window, session) and those of changelogs (window-store, session-store) hold text.
 *
 * <pre>
 * Decoding BOOTSTRAP TOPIC text|window|session|window-store|session-store WINDOW-SIZE text|long
 * </pre>
 */
public final class Decoding {
    private static final StringDeserializer TEXT = new StringDeserializer();

    private Decoding() {}

    public static void main(final String[] words) throws Exception {
        final ObjectMapper json = new ObjectMapper();
        for (final ConsumerRecord<byte[], byte[]> record : committed(words[0], words[1])) {
            final Map<String, Object> line = key(record, words[2], Long.parseLong(words[3]));
            line.put("value", "long".equals(words[4])
                ? Serdes.Long().deserializer().deserialize(record.topic(), record.value())
                : TEXT.deserialize(record.topic(), record.value()));
            line.put("timestamp", record.timestamp());
            line.put("partition", record.partition());
            final List<List<String>> headers = new ArrayList<>();
            for (final Header header : record.headers())
                headers.add(Arrays.asList(header.key(), TEXT.deserialize(record.topic(), header.value())));
            line.put("headers", headers);
            System.out.println(json.writeValueAsString(line));
        }
    }

    private static Map<String, Object> key(final ConsumerRecord<byte[], byte[]> record, final String kind, final long size) {
        final Map<String, Object> line = new LinkedHashMap<>();
        final byte[] key = record.key();
        final Windowed<String> windowed;
        switch (kind) {
            case "text":
                line.put("key", TEXT.deserialize(record.topic(), key));
                return line;
            case "window":
                windowed = new TimeWindowedDeserializer<>(TEXT, size).deserialize(record.topic(), record.headers(), key);
                break;
            case "session":
                windowed = new SessionWindowedDeserializer<>(TEXT).deserialize(record.topic(), record.headers(), key);
                break;
            case "window-store":
                windowed = WindowKeySchema.fromStoreKey(key, size, TEXT, record.headers(), record.topic());
                line.put("sequence", ByteBuffer.wrap(key).getInt(key.length - 4));
                break;
            case "session-store":
                windowed = SessionKeySchema.from(key, TEXT, record.headers(), record.topic());
                break;
            default:
                throw new IllegalArgumentException("there are no keys of the kind " + kind);
        }
        line.put("key", windowed.key());
        line.put("start", windowed.window().start());
        line.put("end", windowed.window().end());
        return line;
    }

    private static List<ConsumerRecord<byte[], byte[]>> committed(final String bootstrap, final String topic) {
        final Properties settings = new Properties();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        final List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            final List<TopicPartition> places = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition())).collect(Collectors.toList());
            consumer.assign(places);
            consumer.seekToBeginning(places);
            final Map<TopicPartition, Long> ends = consumer.endOffsets(places);
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place)))
                consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        }
        return found;
    }
}
