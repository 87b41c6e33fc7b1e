package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.STRING;
import static oracle.Harness.advance;
import static oracle.Harness.in;
import static oracle.Harness.ms;
import static oracle.Words.*;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.Stores;

/** Stream-stream joins. */
final class StreamStreams implements Harness.Area {
    private static final String GROUP = "Stream-stream joins";

    private static Inputs tight() {
        return Inputs.of().keys("left", "a", "b").keys("right", "a", "b").step(6);
    }

    private static Harness.Definition two(final Harness.Registry r, final String name, final String description) {
        return strings(r, name, GROUP, description, "left", "right").config(EMIT_INTERVAL, 0).random(tight());
    }

    private static StreamJoined<String, String, String> named(final String name) {
        return StreamJoined.<String, String, String>as(name).withName(name);
    }

    @Override
    public void register(final Harness.Registry r) {
        final JoinWindows futureOnly = JoinWindows.ofTimeDifferenceAndGrace(ms(20), ms(15)).before(ms(-5));
        final JoinWindows pastOnly = JoinWindows.ofTimeDifferenceAndGrace(ms(20), ms(15)).after(ms(-5));
        two(r, "join-before-negative", "left.join(right, plus, before -5 ms, after 20 ms, grace 15 ms; `j`).")
            .dsl((b, e) -> stream(b, "left").join(stream(b, "right"), PLUS, futureOnly, named("j")).to("out"));
        two(r, "left-join-before-negative", "left.leftJoin(right, plus, before -5 ms, after 20 ms, grace 15 ms; `j`).")
            .dsl((b, e) -> stream(b, "left").leftJoin(stream(b, "right"), PLUS, futureOnly, named("j")).to("out"));
        two(r, "outer-join-before-negative", "left.outerJoin(right, plus, before -5 ms, after 20 ms, grace 15 ms; `j`).")
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS, futureOnly, named("j")).to("out"));
        two(r, "left-join-after-negative", "left.leftJoin(right, plus, before 20 ms, after -5 ms, grace 15 ms; `j`).")
            .dsl((b, e) -> stream(b, "left").leftJoin(stream(b, "right"), PLUS, pastOnly, named("j")).to("out"));
        two(r, "outer-join-after-negative", "left.outerJoin(right, plus, before 20 ms, after -5 ms, grace 15 ms; `j`).")
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS, pastOnly, named("j")).to("out"));
        two(r, "outer-join-one-distance", "left.outerJoin(right, plus, before -5 ms, after 5 ms, no grace): exactly 5 ms newer.")
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS,
                JoinWindows.ofTimeDifferenceWithNoGrace(ms(5)).before(ms(-5)), named("j")).to("out"));
        two(r, "outer-join-same-time", "left.outerJoin(right, plus, 0 ms, grace 5 ms; `j`): equal timestamps only; few timestamps.")
            .random(tight().step(3).late(40, 6))
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS, JoinWindows.ofTimeDifferenceAndGrace(ms(0), ms(5)), named("j")).to("out"));
        two(r, "outer-join-before-only", "left.outerJoin(right, plus, before 12 ms, after 0, no grace; `j`).")
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS,
                JoinWindows.ofTimeDifferenceWithNoGrace(ms(12)).after(Duration.ZERO), named("j")).to("out"));
        two(r, "outer-join-large-grace", "left.outerJoin(right, plus, before 5 ms, after 15 ms, grace 100 ms; unnamed).")
            .random(tight().late(40, 90))
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS,
                JoinWindows.ofTimeDifferenceAndGrace(ms(15), ms(100)).before(ms(5))).to("out"));
        two(r, "outer-join-duplicates", "left.outerJoin(right, plus, 5 ms, grace 5 ms; `j`): the same keys at the same few timestamps.")
            .random(tight().keys("left", "a").keys("right", "a", "b").step(2).late(50, 8).nulls(4, 4))
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS, JoinWindows.ofTimeDifferenceAndGrace(ms(5), ms(5)), named("j")).to("out"));
        two(r, "inner-join-duplicates", "left.join(right, key: plus, 5 ms, grace 5 ms; `j`): the same keys at the same few timestamps.")
            .random(tight().keys("left", "a").keys("right", "a", "b").step(2).late(50, 8).nulls(4, 4))
            .dsl((b, e) -> stream(b, "left").join(stream(b, "right"), KEY_PLUS, JoinWindows.ofTimeDifferenceAndGrace(ms(5), ms(5)), named("j")).to("out"));
        two(r, "left-join-duplicates", "left.leftJoin(right, key: plus, before 3 ms, after 6 ms, no grace; `j`): the same keys at the same few timestamps.")
            .random(tight().keys("left", "a", "b").keys("right", "a").step(2).late(50, 8).nulls(8, 8))
            .dsl((b, e) -> stream(b, "left").leftJoin(stream(b, "right"), KEY_PLUS,
                JoinWindows.ofTimeDifferenceWithNoGrace(ms(6)).before(ms(3)), named("j")).to("out"));
        two(r, "self-left-join", "in = stream(left): in.leftJoin(in, plus, 5 ms, grace 5 ms; `j`) -> out, and right -> out.")
            .dsl((b, e) -> {
                KStream<String, String> in = stream(b, "left");
                in.leftJoin(in, PLUS, JoinWindows.ofTimeDifferenceAndGrace(ms(5), ms(5)), named("j")).to("out");
                stream(b, "right").to("out");
            });
        strings(r, "self-outer-join-two-reads", GROUP, "stream(in).outerJoin(stream(in).filter(last digit even), plus, 8 ms, grace 5 ms; unnamed).", "in")
            .config(EMIT_INTERVAL, 0)
            .dsl((b, e) -> stream(b, "in").outerJoin(stream(b, "in").filter((k, v) -> v != null && even(v)), PLUS,
                JoinWindows.ofTimeDifferenceAndGrace(ms(8), ms(5))).to("out"));
        two(r, "outer-join-repartitioned", "Both selectKey(part before ':'); outerJoin(10 ms, grace 15 ms; name and store `j`).")
            .random(tight().values("left", Inputs.references("x", "y")).values("right", Inputs.references("x", "y")))
            .dsl((b, e) -> stream(b, "left").selectKey(TO_REFERENCE)
                .outerJoin(stream(b, "right").selectKey(TO_REFERENCE), PLUS, WINDOWS, named("j")).to("out"));
        strings(r, "join-of-joins", GROUP, "(one.join(two, plus, 10 ms, grace 15 ms; `a`)).outerJoin(three, plus, 10 ms, grace 15 ms; `b`).", "one", "two", "three")
            .config(EMIT_INTERVAL, 0).random(Inputs.of().keys("one", "a", "b").keys("two", "a", "b").keys("three", "a", "b").step(6))
            .dsl((b, e) -> stream(b, "one").join(stream(b, "two"), PLUS, WINDOWS, named("a"))
                .outerJoin(stream(b, "three"), PLUS, WINDOWS, named("b")).to("out"));
        strings(r, "left-join-of-outer-join", GROUP, "three.leftJoin(one.outerJoin(two, plus, 5 ms, no grace; `a`), plus, 10 ms, grace 15 ms; `b`).", "one", "two", "three")
            .config(EMIT_INTERVAL, 0).random(Inputs.of().keys("one", "a", "b").keys("two", "a", "b").keys("three", "a", "b").step(6))
            .dsl((b, e) -> {
                KStream<String, String> outer = stream(b, "one").outerJoin(stream(b, "two"), PLUS, JoinWindows.ofTimeDifferenceWithNoGrace(ms(5)), named("a"));
                stream(b, "three").leftJoin(outer, PLUS, WINDOWS, named("b")).to("out");
            });
        two(r, "outer-join-then-group", "left.outerJoin(right, plus, 10 ms, grace 15 ms; `j`).groupByKey.aggregate(dotted; `agg`): no repartition.")
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS, WINDOWS, named("j"))
                .groupByKey().aggregate(() -> "", DOTTED, as("agg")).toStream().to("out"));
        r.add("outer-join-then-group-by", GROUP, "left.outerJoin(right, plus, 10 ms, grace 15 ms; `j`).groupBy(last character).count(`c`).")
            .source("left", STRING, STRING).source("right", STRING, STRING).sink("out", STRING, LONG)
            .config(EMIT_INTERVAL, 0).random(tight())
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS, WINDOWS, named("j"))
                .groupBy((k, v) -> last(v)).count(as("c")).toStream().to("out"));
        two(r, "outer-join-then-aggregate-cached", "left.outerJoin(right, plus, before 20 ms, after 5 ms, no grace; `j`).groupByKey.aggregate(dotted, null when the value's last digit is 5; `agg`), with the record cache: a deletion out of the cache has the timestamp of the joined record, not of the record that was read.")
            .config("statestore.cache.max.bytes", 10485760)
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS,
                    JoinWindows.ofTimeDifferenceWithNoGrace(ms(5)).before(ms(20)), named("j"))
                .groupByKey().aggregate(() -> "", (k, v, a) -> v.endsWith("5") ? null : DOTTED.apply(k, v, a), as("agg"))
                .toStream().to("out"));
        strings(r, "outer-join-interval-asymmetric", GROUP, "left.outerJoin(right, plus, before 20 ms, after 5 ms, grace 10 ms; `j`), default emit interval; the wall clock advances.", "left", "right")
            .random(tight().advances(15, 700).length(70, 80))
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS,
                JoinWindows.ofTimeDifferenceAndGrace(ms(5), ms(10)).before(ms(20)), named("j")).to("out"));
        strings(r, "left-join-interval-and-wall-clock", GROUP, "left.leftJoin(right, plus, 5 ms, no grace; unnamed), default emit interval; the wall clock advances.", "left", "right")
            .random(tight().advances(20, 500).length(70, 80))
            .scenario(in("left", "a", "L1", 10), in("left", "b", "L2", 30), advance(1000), in("right", "c", "R1", 31),
                in("left", "a", "L3", 50), in("left", "a", "L4", 70), advance(999), in("left", "b", "L5", 90),
                advance(1), in("right", "b", "R2", 80), in("right", "b", "R3", 90), in("left", "c", "L6", 120))
            .dsl((b, e) -> stream(b, "left").leftJoin(stream(b, "right"), PLUS, JoinWindows.ofTimeDifferenceWithNoGrace(ms(5))).to("out"));
        strings(r, "outer-join-interval-configured", GROUP, "left.outerJoin(right, plus, 5 ms, grace 5 ms; `j`), emit interval 200 ms; the wall clock advances.", "left", "right")
            .config(EMIT_INTERVAL, 200).random(tight().advances(20, 150))
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS, JoinWindows.ofTimeDifferenceAndGrace(ms(5), ms(5)), named("j")).to("out"));
        r.add("outer-join-longs", GROUP, "left (string, long).outerJoin(right (string, string), key: plus, 10 ms, grace 15 ms; serdes string, long, string; name `j`, store `s`).")
            .source("left", STRING, LONG).source("right", STRING, STRING).sink("out", STRING, STRING)
            .config(EMIT_INTERVAL, 0).random(tight())
            .dsl((b, e) -> b.stream("left", Consumed.with(Serdes.String(), Serdes.Long()))
                .outerJoin(stream(b, "right"), KEY_PLUS, WINDOWS,
                    StreamJoined.with(Serdes.String(), Serdes.Long(), Serdes.String()).withName("j").withStoreName("s"))
                .to("out"));
        two(r, "join-given-stores", "left.join(right, plus, 10 ms, grace 15 ms) with the persistent window stores `ls` and `rs` (retention 35 ms, size 20 ms, duplicates).")
            .dsl((b, e) -> stream(b, "left").join(stream(b, "right"), PLUS, WINDOWS,
                StreamJoined.<String, String, String>with(
                        Stores.persistentWindowStore("ls", ms(35), ms(20), true), Stores.persistentWindowStore("rs", ms(35), ms(20), true)))
                .to("out"));
        two(r, "left-join-key-order", "left.leftJoin(right, plus, 10 ms, no grace; `j`): many keys, released together.")
            .random(Inputs.of().keys("left", "b", "aa", "a", "ab", "B", "ä").keys("right", "b", "aa", "zz").step(3).jumps(6, 60).late(30, 8))
            .dsl((b, e) -> stream(b, "left").leftJoin(stream(b, "right"), PLUS, JoinWindows.ofTimeDifferenceWithNoGrace(ms(10)), named("j")).to("out"));
        two(r, "outer-join-key-order", "left.outerJoin(right, plus, before 10 ms, after 4 ms, grace 3 ms; `j`): many keys, released together.")
            .random(Inputs.of().keys("left", "b", "aa", "a", "ab", "B", "ä").keys("right", "b", "aa", "zz", "a").step(3).jumps(6, 60).late(30, 8))
            .dsl((b, e) -> stream(b, "left").outerJoin(stream(b, "right"), PLUS,
                JoinWindows.ofTimeDifferenceAndGrace(ms(4), ms(3)).before(ms(10)), named("j")).to("out"));
        two(r, "two-joins-of-one-pair", "left.join(right, 5 ms) -> out, left.leftJoin(right, 10 ms) -> out, right.outerJoin(left, 3 ms) -> out; no grace, unnamed.")
            .random(tight())
            .dsl((b, e) -> {
                KStream<String, String> left = stream(b, "left");
                KStream<String, String> right = stream(b, "right");
                left.join(right, PLUS, JoinWindows.ofTimeDifferenceWithNoGrace(ms(5))).to("out");
                left.leftJoin(right, PLUS, JoinWindows.ofTimeDifferenceWithNoGrace(ms(10))).to("out");
                right.outerJoin(left, PLUS, JoinWindows.ofTimeDifferenceWithNoGrace(ms(3))).to("out");
            });
        strings(r, "stream-join-then-table-join", GROUP, "left.leftJoin(right, plus, 10 ms, no grace; unnamed).join(table, plus) -> toTable -> toStream -> out.", "left", "right", "table")
            .config(EMIT_INTERVAL, 0).random(tight().keys("table", "a", "b"))
            .dsl((b, e) -> stream(b, "left").leftJoin(stream(b, "right"), PLUS, JoinWindows.ofTimeDifferenceWithNoGrace(ms(10)))
                .join(table(b, "table"), PLUS).toTable().toStream().to("out"));
    }
}
