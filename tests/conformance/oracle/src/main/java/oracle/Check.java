package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.SESSION;
import static oracle.Harness.STRING;
import static oracle.Harness.ms;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;

/** Topologies of the given traces, to see that the same inputs give the same traces here. */
public final class Check implements Harness.Area {
    @Override
    public void register(final Harness.Registry r) {
        r.add("foreign-key-join", "Foreign-key joins", "")
            .source("left", STRING, STRING).source("right", STRING, STRING).sink("out", STRING, STRING)
            .dsl((builder, effects) -> {
                final KTable<String, String> left = builder.table("left", Materialized.as("ltab"));
                final KTable<String, String> right = builder.table("right", Materialized.as("rtab"));
                left.<String, String, String>join(
                        right,
                        value -> value.startsWith("n") ? null : value.split(":")[0],
                        (l, v) -> l + "+" + v,
                        TableJoined.as("fk"),
                        Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("joined"))
                    .toStream().to("out");
            });
        r.add("stream-versioned-table-join", "Stream-table joins", "")
            .source("stream", STRING, STRING).source("table", STRING, STRING).sink("out", STRING, STRING)
            .dsl((builder, effects) -> {
                final KStream<String, String> stream = builder.stream("stream");
                final KTable<String, String> table = builder.table(
                    "table", Materialized.as(Stores.persistentVersionedKeyValueStore("tab", ms(100))));
                stream.join(table, (s, t) -> s + "+" + t).to("out");
            });
        r.add("session-count", "Windowed aggregations", "")
            .source("in", STRING, STRING).sink("out", SESSION, LONG)
            .dsl((builder, effects) -> builder.<String, String>stream("in")
                .groupByKey()
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(30)))
                .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("counts"))
                .toStream()
                .to("out", Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.Long())));
        r.add("stream-peek-foreach", "Stateless stream operators", "")
            .source("in", STRING, LONG).sink("out", STRING, LONG)
            .dsl((builder, effects) -> {
                final KStream<String, Long> in = builder.stream("in", Consumed.with(Serdes.String(), Serdes.Long()));
                in.peek((k, v) -> effects.add("peek1 " + k + "=" + v))
                    .filter((k, v) -> v != null)
                    .peek((k, v) -> effects.add("peek2 " + k + "=" + v))
                    .to("out", Produced.with(Serdes.String(), Serdes.Long()));
                in.foreach((k, v) -> effects.add("each " + k + "=" + v));
            });
    }
}
