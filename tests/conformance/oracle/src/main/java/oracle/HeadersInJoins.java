package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.STRING;
import static oracle.Harness.ms;
import static oracle.Words.*;

import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;

/** Headers through joins, table aggregates and suppress. */
final class HeadersInJoins implements Harness.Area {
    private static final String GROUP = "Headers in joins";

    private static Harness.Definition with(
        final Harness.Registry r, final String name, final String description, final String... sources) {
        return strings(r, name, GROUP, description, sources)
            .random(Inputs.of().headers(70).keys("left", "a", "b").keys("right", "a", "b").step(6));
    }

    @Override
    public void register(final Harness.Registry r) {
        strings(r, "headers-stream-stream-inner", "Stream-stream joins", "left.join(right, plus, 10 ms, grace 15 ms; `j`), records with headers.", "left", "right")
            .random(Inputs.of().headers(70).keys("left", "a", "b").keys("right", "a", "b").step(6))
            .dsl((b, e) -> stream(b, "left").join(stream(b, "right"), PLUS, WINDOWS, StreamJoined.<String, String, String>as("j")).to("out"));
        strings(r, "headers-stream-stream-left", "Stream-stream joins", "left.leftJoin(right, plus, 10 ms, grace 15 ms), records with headers.", "left", "right")
            .config(EMIT_INTERVAL, 0).random(Inputs.of().headers(70).keys("left", "a", "b").keys("right", "a", "b").step(6))
            .dsl((b, e) -> stream(b, "left").leftJoin(stream(b, "right"), PLUS, WINDOWS).to("out"));
        strings(r, "headers-stream-stream-outer", "Stream-stream joins", "left.outerJoin(right, plus, 10 ms, no grace), records with headers.", "left", "right")
            .config(EMIT_INTERVAL, 0).random(Inputs.of().headers(70).keys("left", "a", "b").keys("right", "a", "b").step(6).nulls(10, 5))
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS,
                org.apache.kafka.streams.kstream.JoinWindows.ofTimeDifferenceWithNoGrace(ms(10))).to("out"));
        strings(r, "headers-self-join", "Stream-stream joins", "left.join(left, plus, 10 ms, grace 15 ms), optimised: all, records with headers.", "left")
            .config(OPTIMIZE, "all").random(Inputs.of().headers(70).keys("left", "a", "b").step(6))
            .dsl((b, e) -> {
                KStream<String, String> left = stream(b, "left");
                left.join(left, PLUS, WINDOWS).to("out");
            });
        with(r, "headers-stream-table", "left.join(right) -> out, left.leftJoin(right.filter(last digit even)) -> out.", "left", "right")
            .dsl((b, e) -> {
                KTable<String, String> right = table(b, "right");
                stream(b, "left").join(right, PLUS).to("out");
                stream(b, "left").leftJoin(right.filter((k, v) -> even(v)), PLUS).to("out");
            });
        with(r, "headers-stream-table-rekeyed", "left.selectKey(first character).leftJoin(right (keys L, R), plus).", "left", "right")
            .random(Inputs.of().headers(70).keys("right", "L", "R"))
            .dsl((b, e) -> stream(b, "left").selectKey((k, v) -> first(v)).leftJoin(table(b, "right"), PLUS).to("out"));
        with(r, "headers-grace-join", "left.join(right versioned (`rv`, 60 ms), plus; grace 15 ms, name `g`).", "left", "right")
            .random(Inputs.of().headers(70).nulls(0, 8).late(40, 50).keys("left", "a", "b").keys("right", "a", "b"))
            .dsl((b, e) -> stream(b, "left").join(versioned(b, "right", "rv", 60), PLUS, Joined.<String, String, String>as("g").withGracePeriod(ms(15))).to("out"));
        with(r, "headers-global-table", "left.leftJoin(globalTable right (`g`), select the key, plus).", "left", "right")
            .dsl((b, e) -> stream(b, "left").leftJoin(b.<String, String>globalTable("right", as("g")), (k, v) -> k, PLUS).to("out"));
        with(r, "headers-table-table", "left.join(right) -> out, left.outerJoin(right; store `joined`) -> out.", "left", "right")
            .dsl((b, e) -> {
                KTable<String, String> left = table(b, "left");
                KTable<String, String> right = table(b, "right");
                left.join(right, PLUS).toStream().to("out");
                left.outerJoin(right, PLUS, as("joined")).toStream().to("out");
            });
        with(r, "headers-table-steps", "left -> filter(last digit even) -> mapValues(v + '!'; store `m`) -> toStream -> out; left.leftJoin(right, plus) -> groupBy((last character, v)) -> aggregate(add, subtract) -> out.", "left", "right")
            .dsl((b, e) -> {
                KTable<String, String> left = table(b, "left");
                left.filter((k, v) -> even(v)).mapValues(v -> v + "!", as("m")).toStream().to("out");
                left.leftJoin(table(b, "right"), PLUS).groupBy((k, v) -> KeyValue.pair(last(v), v))
                    .aggregate(() -> "", ADD, SUBTRACT).toStream().to("out");
            });
        with(r, "headers-foreign-key", "left.join(right, fk, plus) -> out; left.leftJoin(right, fk, plus; store `joined`) -> out.", "left", "right")
            .random(Naming.fk().headers(70))
            .dsl((b, e) -> {
                KTable<String, String> left = table(b, "left");
                KTable<String, String> right = table(b, "right");
                left.join(right, Words::foreignKey, PLUS).toStream().to("out");
                left.leftJoin(right, Words::foreignKey, PLUS, Words.<String>as("joined")).toStream().to("out");
            });
        with(r, "headers-suppress", "left.join(right, plus) -> suppress(until 15 ms, at most 3 records, emit early) -> toStream; left.suppress(until 30 ms, unbounded) -> toStream.", "left", "right")
            .dsl((b, e) -> {
                KTable<String, String> left = table(b, "left");
                left.join(table(b, "right"), PLUS)
                    .suppress(Suppressed.untilTimeLimit(ms(15), Suppressed.BufferConfig.maxRecords(3))).toStream().to("out");
                left.suppress(Suppressed.untilTimeLimit(ms(30), Suppressed.BufferConfig.unbounded())).toStream().to("out");
            });
        r.add("headers-aggregates", GROUP, "left.groupBy(last character).count -> counts; left.merge(table right.toStream).toTable -> toStream -> out; table right -> groupBy((last character, v)) -> reduce(a + ',' + v, a + '-' + v) -> out.")
            .source("left", STRING, STRING).source("right", STRING, STRING).sink("counts", STRING, LONG).sink("out", STRING, STRING)
            .random(Inputs.of().headers(70).nulls(4, 0))
            .dsl((b, e) -> {
                KStream<String, String> left = stream(b, "left");
                left.groupBy((k, v) -> last(v)).count().toStream().to("counts");
                KTable<String, String> right = table(b, "right");
                left.merge(right.toStream()).toTable().toStream().to("out");
                right.groupBy((k, v) -> KeyValue.pair(last(v), v))
                    .reduce(COMMA, MINUS).toStream().to("out");
            });
    }
}
