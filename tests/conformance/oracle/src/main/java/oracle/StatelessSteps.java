package oracle;

import static oracle.Sketch.*;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

/** Stateless steps. */
final class StatelessSteps {
    private StatelessSteps() {}

    static void all() {
        stateless();
    }

    private static void stateless() {
        add("flat-map-many", "Stateless",
            "Stream `in` (string, long) -> flatMap(value records (key + i, i) for i from value - 1 down to 0; null gives none) -> flatMapValues((k, v) -> [v, v + 100] when v is odd, [] when v is 0, else [v]) -> merge with the source filtered by value > 15 -> `out`.",
            topics("> in s l", "< out s l"), Map.of(), (b, x) -> {
                var s = b.stream("in", SL);
                s.flatMap((k, v) -> {
                    final List<KeyValue<String, Long>> all = new ArrayList<>();
                    if (v != null) for (long i = v - 1; i >= 0; i--) all.add(KeyValue.pair(t(k) + i, i));
                    return all;
                }).flatMapValues((k, v) -> v % 2 == 1 ? List.of(v, v + 100) : v == 0 ? List.<Long>of() : List.of(v))
                    .merge(s.filter((k, v) -> v != null && v > 15)).to("out", Produced.with(S, L));
            },
            "in a 3 0; in - 2 5; in b - 6; in c 17 1; in d 0 2",
            feed().length(9, 13).headers(10).values("in", longs(18)));
        add("branch-in-branch", "Stateless",
            "Stream `in` (string, long) -> split(no name): branch(v null; unnamed) -> `nulls`; branch(v < 10; given a function: the branch -> split(named `in-`): branch(v even; named `even`) -> `even`; default(named `odd`, function v * 1000, returned) -> `odd`); default(unnamed) -> split(): branch(v > 15) -> `big`, no default.",
            topics("> in s l", "< big s l", "< even s l", "< nulls s l", "< odd s l"), Map.of(), (b, x) -> {
                var outer = b.stream("in", SL).split().branch((k, v) -> v == null)
                    .branch((k, v) -> v < 10, Branched.withConsumer(low -> {
                        var inner = low.split(Named.as("in-")).branch((k, v) -> v % 2 == 0, Branched.as("even"))
                            .defaultBranch(Branched.withFunction(odd -> odd.mapValues(v -> v * 1000), "odd"));
                        inner.get("in-even").to("even");
                        inner.get("in-odd").to("odd", Produced.with(S, L));
                    })).defaultBranch();
                outer.entrySet().stream().sorted(Map.Entry.comparingByKey()).forEach(e -> {
                    if (e.getKey().endsWith("1")) e.getValue().to("nulls");
                    if (e.getKey().endsWith("0")) e.getValue().split().branch((k, v) -> v > 15, Branched.withConsumer(big -> big.to("big"))).noDefaultBranch();
                });
            },
            "in a 3 0; in - 2 5; in b - 6; in c 17 1; in d 12 2",
            feed().values("in", longs(20)));
        add("merge-three", "Stateless",
            "Streams `in1`, `in2`, `in3` (string, string): in1.filter(v not null).merge(in2.mapValues(\"2\" + v)).merge(in3.selectKey(v), named `all`) -> groupByKey -> count(store `counts`) -> toStream -> `out`. The mark of in3 makes the repartition.",
            topics("> in1 s s", "> in2 s s", "> in3 s s", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in1", SS).filter((k, v) -> v != null).merge(b.stream("in2", SS).mapValues(v -> "2" + t(v)))
                    .merge(b.stream("in3", SS).selectKey((k, v) -> v), Named.as("all")).groupByKey().count(kv("counts", L)).toStream().to("out");
            },
            "in1 a x 0; in2 a y 5; in3 b a 6; in1 b - 7; in2 - z 1; in3 c - 2; in3 c b 3",
            feed().values("in3", oneOf("a", "b", "z")));
        add("peek-order-many-children", "Stateless",
            "Stream `in` (string, long); four children of the source: peek(log \"1\") -> filter(even) -> peek(log \"1e\") -> `first`; peek(log \"2\") whose two children are foreach(log \"2a\") and mapValues(v + 1) -> peek(log \"2b\") -> `second`; foreach(log \"3\"); print to a file; then selectKey(\"k\") -> repartition(named `rep`) -> peek(log \"4\") -> `third`. Logs end with \" key=value\".",
            topics("> in s l", "< first s l", "< second s l", "< third s l"), Map.of(), (b, x) -> {
                var s = b.stream("in", SL);
                s.peek((k, v) -> x.add("1 " + t(k) + "=" + t(v))).filter((k, v) -> v != null && v % 2 == 0).peek((k, v) -> x.add("1e " + t(k) + "=" + t(v))).to("first");
                var two = s.peek((k, v) -> x.add("2 " + t(k) + "=" + t(v)));
                two.foreach((k, v) -> x.add("2a " + t(k) + "=" + t(v)));
                two.mapValues(v -> v == null ? null : v + 1).peek((k, v) -> x.add("2b " + t(k) + "=" + t(v))).to("second", Produced.with(S, L));
                s.foreach((k, v) -> x.add("3 " + t(k) + "=" + t(v)));
                s.print(Printed.<String, Long>toFile("/dev/null").withLabel("seen"));
                s.selectKey((k, v) -> "k").repartition(Repartitioned.with(S, L).withName("rep")).peek((k, v) -> x.add("4 " + t(k) + "=" + t(v))).to("third");
            },
            "in a 3 0; in - 2 5; in b - 6; in c 18 1",
            feed().length(10, 14).values("in", longs(20)));
        add("repartition-chain", "Stateless",
            "Stream `in` (string, string) -> selectKey(v) -> repartition(named `one`, 4 partitions) -> mapValues(key + v) -> map((v, key)) -> repartition(unnamed) -> flatMapValues([v, v + v]) -> groupByKey -> reduce(a + \"|\" + v; store `red`) -> toStream -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("in", SS).selectKey((k, v) -> v).repartition(Repartitioned.with(S, S).withName("one").withNumberOfPartitions(4))
                    .mapValues((k, v) -> t(k) + t(v)).map((k, v) -> KeyValue.pair(v, t(k))).repartition(Repartitioned.with(S, S))
                    .flatMapValues(v -> List.of(v, v + v)).groupByKey().reduce((a, v) -> a + "|" + v, kv("red", S)).toStream().to("out");
            },
            "in a x 0; in b y 5; in - x 6; in c - 1",
            feed().length(18, 24).values("in", oneOf("x", "y", "z")));
        add("dynamic-topic-read-again", "Stateless",
            "Stream `in` (string, long) -> to(topic by value: odd `mid`, even `side`, null `out`); stream `mid` (string, long) -> mapValues(v * 3 + 1) -> to(topic: v > 30 `side`, else `out`). All (string, long).",
            topics("> in s l", "* mid s l", "< out s l", "< side s l"), Map.of(), (b, x) -> {
                b.stream("in", SL).to(new Route<Long>(v -> v == null ? "out" : v % 2 == 1 ? "mid" : "side"), Produced.with(S, L));
                b.stream("mid", SL).mapValues(v -> v == null ? null : v * 3 + 1).to(new Route<Long>(v -> v != null && v > 30 ? "side" : "out"), Produced.with(S, L));
            },
            "in a 3 0; in - 2 5; in b - 6; in c 17 1; mid d 12 2",
            feed().values("in", longs(20)));
        add("feedback-topic", "Stateless",
            "Stream `in` (string, long) -> filter(v not null) -> `loop`; stream `loop` (string, long) -> split: branch(v > 1) -> mapValues(v / 2) -> `loop`; default -> `out`. A topic that feeds itself.",
            topics("> in s l", "* loop s l", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SL).filter((k, v) -> v != null).to("loop");
                var map = b.stream("loop", SL).split(Named.as("l-")).branch((k, v) -> v != null && v > 1, Branched.as("again")).defaultBranch(Branched.as("done"));
                map.get("l-again").mapValues(v -> v / 2).to("loop", Produced.with(S, L));
                map.get("l-done").to("out");
            },
            "in a 9 0; in - 2 5; in b - 6; loop c 5 1; loop d - 3",
            feed().length(18, 24).values("in", longs(20)));
        add("same-topic-two-streams", "Stateless",
            "Stream `in` (string, string) read by two builder.stream(\"in\"): the first -> mapValues(v + \"1\") -> `one`; the second -> groupByKey -> count(store `counts`) -> toStream -> `two`; then stream over [`in`] once more -> foreach(log \"third key=value\").",
            topics("> in s s", "< one s s", "< two s l"), Map.of(), (b, x) -> {
                b.stream("in", SS).mapValues(v -> t(v) + "1").to("one");
                b.stream("in", SS).groupByKey().count(kv("counts", L)).toStream().to("two");
                b.stream(List.of("in"), SS).foreach((k, v) -> x.add("third " + t(k) + "=" + t(v)));
            },
            "in a x 0; in b y 5; in - x 6; in c - 1",
            feed().length(18, 24).values("in", letters()));
        add("select-key-to-table-join", "Stateless",
            "Stream `in` (string, string) -> selectKey(first letter of v, null for null) -> toTable(named `tab`, store `tabs`); stream `other` (string, string) -> values() -> groupByKey -> count(store `counts`); the first table.leftJoin(counts, v + \"/\" + n) -> toStream((k, v) -> k + k) -> `out`.",
            topics("> in s s", "> other s s", "< out s s"), Map.of(), (b, x) -> {
                var tab = b.stream("in", SS).selectKey((k, v) -> v == null ? null : v.substring(0, 1)).toTable(Named.as("tab"), kv("tabs", S));
                var counts = b.stream("other", SS).groupByKey().count(kv("counts", L));
                tab.leftJoin(counts, (v, n) -> v + "/" + t(n)).toStream((k, v) -> k + k).to("out", Produced.with(S, S));
            },
            "in a x1 0; other x q 5; in b x2 2; other x r 1; in c - 3; other y s 4; in d y5 9; other - t 10",
            feed().keys("other", "x", "y", "z").values("in", oneOf("x1", "y1", "z1", "x2")));
    }
}
