package oracle;

import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.errors.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;
import java.time.Duration;
import java.util.*;

/** What Kafka Streams makes of the deliberate differences of decision 008: what tests/streams/test_compat.py expects. */
public class Differences {
    static class ListSerde extends Serdes.WrapperSerde<List<String>> {
        ListSerde() { super((t, d) -> d == null ? null : String.join(",", d).getBytes(), (t, b) -> b == null ? null : b.length == 0 ? new ArrayList<>() : new ArrayList<>(Arrays.asList(new String(b).split(",")))); }
    }
    static Properties props(boolean skip) {
        Properties p = new Properties();
        p.put("application.id", "a"); p.put("bootstrap.servers", "x:1");
        p.put("default.key.serde", Serdes.StringSerde.class); p.put("default.value.serde", Serdes.StringSerde.class);
        p.put("state.dir", "target/state");
        if (skip) p.put("processing.exception.handler", LogAndContinueProcessingExceptionHandler.class);
        return p;
    }
    interface Body { void run(TopologyTestDriver d, TestInputTopic<String, String> in) throws Exception; }
    static void play(String name, StreamsBuilder b, boolean skip, Body body) throws Exception {
        System.out.println("== " + name);
        try (TopologyTestDriver d = new TopologyTestDriver(b.build(), props(skip))) {
            body.run(d, d.createInputTopic("in", new StringSerializer(), new StringSerializer()));
        } catch (Throwable e) {
            Throwable c = e; String s = "";
            while (c != null) { s += " <- " + c.getClass().getSimpleName() + ": " + c.getMessage(); c = c.getCause(); }
            System.out.println("raised" + s);
        }
    }
    static void show(TopologyTestDriver d, String... topics) {
        for (String t : topics) {
            List<String> out = new ArrayList<>();
            for (var r : d.createOutputTopic(t, new StringDeserializer(), new StringDeserializer()).readRecordsToList()) out.add(r.value());
            System.out.println(t + ": " + out + " dropped " + d.metrics().entrySet().stream().filter(e -> e.getKey().name().equals("dropped-records-total")).mapToDouble(e -> (Double) e.getValue().metricValue()).sum());
        }
    }
    static List<String> add(List<String> l, String v) { l.add(v); return l; }
    static void regroup(KTable<?, List<String>> t) {
        ((KTable<Object, List<String>>) t).groupBy((k, v) -> KeyValue.pair("all", v), Grouped.with(Serdes.String(), new ListSerde()))
          .aggregate(ArrayList::new, (k, n, s) -> { List<String> r = new ArrayList<>(s); r.add("+"); r.addAll(n); return r; },
                     (k, o, s) -> { List<String> r = new ArrayList<>(s); r.add("-"); r.addAll(o); return r; },
                     Materialized.<String, List<String>, KeyValueStore<Bytes, byte[]>>with(Serdes.String(), new ListSerde()).withCachingDisabled())
          .toStream().mapValues(v -> v.toString()).to("out");
    }
    public static void main(String[] a) throws Exception {
        StreamsBuilder b = new StreamsBuilder();
        regroup(b.<String, String>stream("in").groupByKey().aggregate(ArrayList::new, (k, v, l) -> add(l, v), Materialized.<String, List<String>, KeyValueStore<Bytes, byte[]>>with(Serdes.String(), new ListSerde()).withCachingDisabled()));
        play("mutating aggregate", b, false, (d, in) -> { in.pipeInput("k", "1", 0); in.pipeInput("k", "2", 0); show(d, "out"); });
        for (int i = 0; i < 2; i++) {
            b = new StreamsBuilder();
            KGroupedStream<String, String> g = b.<String, String>stream("in").groupByKey();
            var m = Materialized.<String, List<String>, WindowStore<Bytes, byte[]>>with(Serdes.String(), new ListSerde()).withCachingDisabled();
            regroup(i == 0 ? g.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMillis(10))).aggregate(ArrayList::new, (k, v, l) -> add(l, v), m)
                           : g.windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(10))).aggregate(ArrayList::new, (k, v, l) -> add(l, v), m));
            play(i == 0 ? "mutating window" : "mutating sliding", b, false, (d, in) -> { in.pipeInput("k", "1", 20); in.pipeInput("k", "2", 20); show(d, "out"); });
        }
        b = new StreamsBuilder();
        b.<String, String>stream("in").groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ofMillis(10)))
            .aggregate(ArrayList::new, (k, v, l) -> add(l, v), Materialized.<String, List<String>, WindowStore<Bytes, byte[]>>with(Serdes.String(), new ListSerde()).withCachingDisabled())
            .toStream().map((k, v) -> KeyValue.pair(k.key(), k.window().start() + ":" + v)).to("out");
        play("right window", b, false, (d, in) -> { in.pipeInput("k", "1", 20); in.pipeInput("k", "2", 25); in.pipeInput("k", "3", 22); show(d, "out"); });
        b = new StreamsBuilder();
        regroup(b.<String, String>stream("in").groupByKey().windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMillis(10)))
            .aggregate(ArrayList::new, (k, v, l) -> add(l, v), (k, x, y) -> { y.add("merged"); List<String> r = new ArrayList<>(x); r.addAll(y); return r; },
                Materialized.<String, List<String>, SessionStore<Bytes, byte[]>>with(Serdes.String(), new ListSerde()).withCachingDisabled()));
        play("mutating merger", b, false, (d, in) -> { in.pipeInput("k", "1", 0); in.pipeInput("k", "2", 5); show(d, "out"); });
        for (boolean skip : new boolean[]{false, true}) {
            b = new StreamsBuilder();
            KTable<String, String> t = b.table("table", Materialized.as(Stores.persistentVersionedKeyValueStore("rows", Duration.ofSeconds(1))));
            b.<String, String>stream("in").leftJoin(t, (v, r) -> { if (v.equals("bad")) throw new IllegalArgumentException(v); return v; }, Joined.<String, String, String>with(null, null, null).withGracePeriod(Duration.ofMillis(10)).withName("j")).to("out");
            play("grace null key skip=" + skip, b, skip, (d, in) -> { in.pipeInput(null, "1", 0); show(d, "out"); });
            if (skip) play("grace raises", b, skip, (d, in) -> { in.pipeInput("k", "bad", 0); in.pipeInput("k", "good", 1); in.pipeInput("k", "a", 20); in.pipeInput("k", "b", 40); in.pipeInput("k", "c", 60); show(d, "out"); });
            b = new StreamsBuilder();
            b.<String, String>stream("in").groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(Duration.ZERO)).count().toStream().map((k, v) -> KeyValue.pair(k.key(), "" + v)).to("out");
            play("sliding 0 skip=" + skip, b, skip, (d, in) -> { in.pipeInput("k", "1", 5); in.pipeInput("k", "1", 5); in.pipeInput("k", "1", 4); show(d, "out"); });
        }
        b = new StreamsBuilder();
        b.<String, String>table("in", Materialized.as("rows")).groupBy((k, v) -> KeyValue.pair(v.split(":")[0].getBytes(), Long.parseLong(v.split(":")[1])), Grouped.with(Serdes.ByteArray(), Serdes.Long()))
            .reduce((x, y) -> x + y, (x, y) -> x - y, Materialized.with(Serdes.ByteArray(), Serdes.Long())).toStream().map((k, v) -> KeyValue.pair("k", "" + v)).to("out");
        play("groups of bytes", b, false, (d, in) -> { in.pipeInput("k", "a:1", 0); in.pipeInput("k", "a:5", 1); show(d, "out"); });
        for (boolean source : new boolean[]{false, true}) {
            b = new StreamsBuilder();
            KStream<String, String> s = b.stream("in");
            if (!source) s = s.flatMapValues(v -> Arrays.asList(v.split(" ")), Named.as("parent"));
            s.to((k, v, c) -> { if (v.equals("bad")) throw new IllegalArgumentException(v); return "out"; });
            s.to("sibling");
            play("sink raises, behind a source " + source, b, true, (d, in) -> {
                try { in.pipeInput("k", source ? "bad" : "a bad c", 0); } catch (Exception e) { System.out.println("raised " + e.getClass().getSimpleName() + " " + e.getMessage()); }
                show(d, "sibling"); try { show(d, "out"); } catch (Exception e) { System.out.println(e.getMessage()); } });
        }
    }
}
