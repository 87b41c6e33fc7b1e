package oracle;

import static oracle.Harness.ms;
import static oracle.Sketch.t;
import static oracle.Sketch.words;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

/** The processors of these topologies. */
final class OwnProcessors {
    private OwnProcessors() {}

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
