package oracle;

import static oracle.Harness.ms;
import static oracle.Sketch.*;

import java.util.Map;
import oracle.OwnProcessors.*;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.state.*;

/** The Processor API. */
final class ProcessorApi {
    private ProcessorApi() {}

    static void all() {
        processors();
    }

    private static void processors() {
        add("processor-window-store", "Processor API",
            "Stream `in` (string, string) -> process (plain window store `win`: retention 100 ms, window size 50 ms): for a non-null key put (key, value) at the record's timestamp, then forward (key, the rows of fetch(key, ts - 40, ts + 40) as \"value@start\", joined by \",\") -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("win", ms(100), ms(50), false), S, S));
                b.stream("in", SS).process(() -> new Around("win"), "win").to("out", Produced.with(S, S));
            },
            "in a x 10; in a y 30; in b z 31; in a w 30; in a - 10; in a v 90; in a u 140; in a t 60; in a s 30",
            feed().late(25, 120).values("in", letters()));
        add("processor-window-store-duplicates", "Processor API",
            "As processor-window-store, with retained duplicates.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("win", ms(100), ms(50), true), S, S));
                b.stream("in", SS).process(() -> new Around("win"), "win").to("out", Produced.with(S, S));
            },
            "in a x 10; in a y 30; in b z 31; in a w 30; in a - 10; in a v 90; in a u 140; in a t 60; in a s 30",
            feed().step(4).late(25, 120).values("in", letters()));
        add("processor-session-store", "Processor API",
            "Stream `in` (string, string) -> process (session store `ses`, retention 500 ms): for a non-null key, over the rows of fetch(key) in order: a session whose [start, end] contains ts is removed; then put the session [ts - ts % 20, ts] with the value (nothing for a null value); forward (key, all rows of fetch(key) as \"value[start,end]\" joined by \",\") -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.sessionStoreBuilder(Stores.persistentSessionStore("ses", ms(500)), S, S));
                b.stream("in", SS).process(HandSessions::new, "ses").to("out", Produced.with(S, S));
            },
            "in a x 10; in a y 30; in b z 31; in a w 35; in a - 5; in a v 90; in a u 140; in a t 60; in a s 30",
            feed().length(16, 22).values("in", letters()));
        add("processor-versioned-store", "Processor API",
            "Stream `in` (string, string) -> process (versioned store `ver`, history retention 80 ms): for a non-null key put(key, value, ts), then forward (key, latest + \"|\" + as of ts - 30 + \"|\" + as of ts) each as value@timestamp>validTo or none -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore("ver", ms(80)), S, S));
                b.stream("in", SS).process(Versions::new, "ver").to("out", Produced.with(S, S));
            },
            "in a x 10; in a y 30; in b z 31; in a w 20; in a - 25; in a v 90; in a u 140; in a t 60; in a s 30; in a - 150",
            feed().late(35, 110).values("in", letters()));
        add("processor-timestamped-store", "Processor API",
            "Stream `in` (string, long) -> process (timestamped key-value store `st`): for a non-null key and value, put the sum of the stored and the new value with the greater of both timestamps; a null value deletes; forward (key, sum) with the stored timestamp; when the value is 7, forward every row in key order first -> `out`.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore("st"), S, L));
                b.stream("in", SL).process(Sums::new, "st").to("out", Produced.with(S, L));
            },
            "in a 1 10; in a 2 5; in b 3 20; in c 7 15; in a - 30; in a 7 1; in - 4 40",
            feed().values("in", longs(9)));
        add("processor-chain", "Processor API",
            "Stream `in` (string, string) -> process named `first` (stores `seen`, `shared`: counts records per key in `seen`, puts value into `shared`; forwards value + \"#\" + n twice, the second with timestamp + 5) -> filter(n is not divisible by 3, by the text after #) -> process named `second` (store `shared` and `last`: forwards (shared value of the key) + \"<\" + value + \"<\" + last; then last = value) -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("seen"), S, L));
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("shared"), S, S));
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("last"), S, S));
                b.stream("in", SS).process(First::new, Named.as("first"), "seen", "shared")
                    .filter((k, v) -> Integer.parseInt(v.substring(v.indexOf('#') + 1)) % 3 != 0)
                    .process(Second::new, Named.as("second"), "shared", "last").to("out", Produced.with(S, S));
            },
            "in a x 10; in b y 5; in a z 20; in a w 15; in - v 30; in a - 31; in a u 32",
            feed().headers(20).values("in", letters()));
        add("punctuators-rescheduled", "Processor API",
            "Stream `in` (string, string) -> process: value \"s<n>\" cancels the stream-time punctuator (if any) and schedules a new one every n ms; \"w<n>\" likewise for the wall clock; \"stop\" cancels both; everything else forwards (key, value). Each firing logs \"s<n> <ts>\" or \"w<n> <ts>\" and forwards (\"tick\", that text) with the punctuation's time -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).process(() -> new Clocks(x)).to("out", Produced.with(S, S));
            },
            "in a s10 5; in a x 7; in a y 16; in a s30 20; in a z 25; in a w50 40; + 49; + 1; in a v 130; + 120; in a w20 131; + 5; + 20; in a stop 140; in a u 300; + 500; in a w10 301; + 10; in a s5 290; in a t 294; in a r 296",
            feed().advances(20, 150).values("in", oneOf("x", "y", "s10", "s25", "w30", "w100", "stop", "z", "v")));
        add("punctuator-in-punctuator", "Processor API",
            "Stream `in` (string, string) -> process: a stream-time punctuator every 40 ms schedules, on its first three firings, another every (10 * firings) ms that cancels itself after 2 firings; each logs \"outer <ts>\" or \"inner<i> <ts>\" and forwards (\"p\", that text); a wall-clock punctuator every 100 ms logs \"wall <ts>\" and cancels the outer one at its 4th firing; process forwards the record with value + \"@\" + current stream time + \"/\" + wall clock -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).process(() -> new Nested(x)).to("out", Produced.with(S, S));
            },
            "in a x 5; in a y 41; in a z 52; in a w 61; in a v 85; + 100; in a u 90; + 300; in a t 125; + 100; + 100; in a s 200; in a r 300",
            feed().advances(12, 150).values("in", letters()));
        add("forward-to-named-children", "Processor API",
            "Stream `in` (string, long) -> process named `router`: even values are forwarded to the child `evens`, odd ones to `odds`, null to all children; children of the router, in this order: mapValues(v * 2; named `evens`) -> `even`; mapValues(v * 10 ; named `odds`) -> `odd`; foreach(log \"seen key=value\"; named `all`). Null stays null.",
            topics("> in s l", "< even s l", "< odd s l"), Map.of(), (b, x) -> {
                var routed = b.stream("in", SL).process(Router::new, Named.as("router"));
                routed.mapValues(v -> v == null ? null : v * 2, Named.as("evens")).to("even", Produced.with(S, L));
                routed.mapValues(v -> v == null ? null : v * 10, Named.as("odds")).to("odd", Produced.with(S, L));
                routed.foreach((k, v) -> x.add("seen " + t(k) + "=" + t(v)), Named.as("all"));
            },
            "in a 1 0; in a 2 5; in b - 6; in - 3 7",
            feed().values("in", longs(9)));
        add("process-key-change-count", "Processor API",
            "Stream `in` (string, string) -> process: forwards, for each word of the value (split at _), (word, key) with timestamp + its position -> groupByKey -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SS).process(WordKeys::new).groupByKey().count(kv("counts", L)).toStream().to("out");
            },
            "in a x_y_x 0; in b y 1; in - x 5; in c - 6; in a z_x 2",
            feed().length(18, 24).headers(20).values("in", phrase()));
        add("process-values-after-filter", "Processor API",
            "Stream `in` (string, long) -> selectKey(\"k\" + value % 2; null for null) -> filter(value not null) -> processValues named `diff` (store `last` plain: forwards value - last of the key, twice, the second time with timestamp + 1000) -> groupByKey(named `grp`; string, long) -> tumbling 50 ms, grace 1000 ms -> reduce(+; store `sum`) -> toStream -> `out`. The stream is marked by selectKey, processValues is not repartitioned, the grouping is.",
            topics("> in s l", "< out w50 l"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("last"), S, L));
                b.stream("in", SL).selectKey((k, v) -> v == null ? null : "k" + v % 2).filter((k, v) -> v != null)
                    .processValues(Difference::new, Named.as("diff"), "last")
                    .groupByKey(Grouped.with("grp", S, L)).windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(1000)))
                    .reduce(Long::sum, win("sum", L)).toStream().to("out");
            },
            "in a 1 0; in a 3 5; in b 2 6; in - 3 7; in a - 8; in a 8 40; in a 1 20",
            feed().length(18, 24).values("in", longs(9)));
        add("global-store-processor", "Processor API",
            "Global store `glo` (plain, string, string) fed from topic `facts` (string, string) by a processor that puts (key in upper case, value + \"/\" + previous or none) for non-null keys, a null value deletes; stream `in` (string, string) -> process (no stores attached): forwards (key, value + \"+\" + global value of the key in upper case or none) for non-null keys -> `out`.",
            topics("> facts s s", "> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addGlobalStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("glo"), S, S).withLoggingDisabled(), "facts", SS, Facts::new);
                b.stream("in", SS).process(Ask::new).to("out", Produced.with(S, S));
            },
            "in a x 0; facts a f1 10; in a y 5; facts a f2 3; in a z 20; facts a - 30; in a w 31; in - v 32",
            feed().nulls(0, 8).values("in", letters()));
        add("two-global-tables", "Processor API",
            "Global table `facts` (string, string; store `glo`) and global table `more` (string, string; no name); stream `in` (string, string) -> leftJoin(facts by key, value + \"+\" + fact) -> join(more by the first letter of the value, value + \"*\" + more) -> `out`.",
            topics("> facts s s", "> more s s", "> in s s", "< out s s"), Map.of(), (b, x) -> {
                var facts = b.globalTable("facts", SS, kv("glo", S));
                var more = b.globalTable("more", SS);
                b.stream("in", SS).leftJoin(facts, (k, v) -> k, (v, f) -> t(v) + "+" + t(f))
                    .join(more, (k, v) -> v.substring(0, 1), (v, m) -> v + "*" + m).to("out", Produced.with(S, S));
            },
            "in a x 0; facts a f1 10; more x m1 1; in a y 5; in a x 6; facts a - 3; in a x 20; more y m2 5; in - y 32; in - x 40",
            feed().keys("more", "x", "y", "z").values("in", oneOf("x", "y", "z")));
        add("low-level-many", "Processor API",
            "Low-level Topology: source S1 over `in1`; source S2 over `in2` and `in3`; processor P1 (parents S1, S2; shared plain window store `win`, retention 1000 ms, size 100 ms: puts (key, value) at ts - ts % 100 and forwards the record) ; processor P2 (parent P1 and S2; store `win` and key-value store `n`: forwards (key, value + \"/\" + window value at ts - ts % 100 or none + \"/\" + count of the key so far)); sink K1 `out1` (parent P2), sink K2 `out2` (parents P1, S1). Null keys are ignored by both processors.",
            topics("> in1 s s", "> in2 s s", "> in3 s s", "< out1 s s", "< out2 s s"), Map.of(), null,
            "in1 a x 0; in2 a y 50; in3 b z 60; in1 a w 120; in2 a v 110; in3 - u 130; in1 b - 140; in2 b t 90",
            feed().length(16, 22).values("in1", letters()));
        definition("low-level-many").topology(effects -> new Topology()
            .addSource("S1", S.deserializer(), S.deserializer(), "in1")
            .addSource("S2", S.deserializer(), S.deserializer(), "in2", "in3")
            .addProcessor("P1", LowFirst::new, "S1", "S2")
            .addProcessor("P2", LowSecond::new, "P1", "S2")
            .addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("win", ms(1000), ms(100), false), S, S), "P1", "P2")
            .addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("n"), S, L), "P2")
            .addSink("K1", "out1", S.serializer(), S.serializer(), "P2")
            .addSink("K2", "out2", S.serializer(), S.serializer(), "P1", "S1"));
        add("low-level-two-subtopologies", "Processor API",
            "Low-level Topology: source A over `in`; sink `mid` (parent A); source B over `mid`; processor C (parent B; store `c` in memory: counts per key, forwards (key, value + n)); sink D `out` (parent C); a source E over `other` with a sink F (extractor: topic \"out\" when the value is longer than 2, else \"side\").",
            topics("> in s s", "* mid s s", "> other s s", "< out s s", "< side s s"), Map.of(), null,
            "in a x 0; mid a y 50; other b z 60; other b zzz 61; in a w 20; in - v 21; other a - 22; in a - 23",
            feed().values("other", oneOf("xx", "yyy", "z")));
        definition("low-level-two-subtopologies").topology(effects -> new Topology()
            .addSource("A", S.deserializer(), S.deserializer(), "in")
            .addSink("M", "mid", S.serializer(), S.serializer(), "A")
            .addSource("B", S.deserializer(), S.deserializer(), "mid")
            .addProcessor("C", Counted::new, "B")
            .addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("c"), S, L), "C")
            .addSink("D", "out", S.serializer(), S.serializer(), "C")
            .addSource("E", S.deserializer(), S.deserializer(), "other")
            .addSink("F", new Route<String>(v -> v != null && v.length() > 2 ? "out" : "side"), S.serializer(), S.serializer(), "E"));
        add("pattern-source", "Processor API",
            "Stream over the pattern `in-[0-9]` (string, string; inputs to in-1, in-2) -> mapValues(key + \":\" + value) -> groupByKey -> count(store `counts`) -> toStream -> `out`.",
            topics("> in-1 s s", "> in-2 s s", "< out s l"), Map.of(), (b, x) -> {
                b.stream(java.util.regex.Pattern.compile("in-[0-9]"), SS).mapValues((k, v) -> t(k) + ":" + t(v))
                    .groupByKey().count(kv("counts", L)).toStream().to("out");
            },
            "in-1 a x 0; in-2 a y 5; in-1 b z 3; in-2 - w 6; in-2 b - 7",
            feed().values("in-1", letters()));
        add("processor-schedule-forward-downstream", "Processor API",
            "Stream `in` (string, string) -> process named `hold` (store `held`: collects value + \",\" per key; every 60 ms of stream time forwards every row with the punctuation's time and clears the store) -> mapValues(\"<\" + v + \">\") -> process named `again` (every 30 ms of stream time forwards (\"beat\", number of records it saw); forwards every record) -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("held"), S, S));
                b.stream("in", SS).process(Hold::new, Named.as("hold"), "held").mapValues(v -> "<" + v + ">")
                    .process(Beat::new, Named.as("again")).to("out", Produced.with(S, S));
            },
            "in a x 5; in b y 20; in a z 61; in a w 40; in c v 95; in a u 130; in a t 400",
            feed().values("in", letters()));
    }
}
