package oracle;

import static oracle.Harness.ms;
import static oracle.Sketch.*;

import java.util.Map;
import oracle.OwnProcessors.*;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.state.*;

/** Larger topologies. */
final class MixedSteps {
    private MixedSteps() {}

    static void all() {
        mixed();
    }

    private static void mixed() {
        add("orders-enriched", "Mixed",
            "Stream `orders` (string, string \"customer:product:amount\") -> filter(v not null) -> selectKey(customer) -> join(table `customers` (string, string country; store `cust`), order + \":\" + country) -> leftJoin(global table `products` (string, string; store `prod`) by product, order + \":\" + product name) -> peek(log v) -> groupBy(country; named `by-country`) -> tumbling 50 ms, grace 30 ms -> aggregate(init 0, agg + amount; store `revenue`) -> toStream -> `out`.",
            topics("> orders s s", "> customers s s", "> products s s", "< out w50 l"), Map.of(), (b, x) -> {
                var customers = b.table("customers", SS, kv("cust", S));
                var products = b.globalTable("products", SS, kv("prod", S));
                b.stream("orders", SS).filter((k, v) -> v != null).selectKey((k, v) -> v.split(":")[0])
                    .join(customers, (o, c) -> o + ":" + c)
                    .leftJoin(products, (k, v) -> v.split(":")[1], (o, p) -> o + ":" + t(p))
                    .peek((k, v) -> x.add(v))
                    .groupBy((k, v) -> v.split(":")[3], Grouped.with("by-country", S, S))
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(30)))
                    .aggregate(() -> 0L, (k, v, a) -> a + Long.parseLong(v.split(":")[2]), win("revenue", L)).toStream().to("out");
            },
            "orders 1 a:p:5 0; customers a de 1; orders 2 a:p:5 10; products p pen 11; orders 3 a:p:7 12; customers a fr 20; orders 4 a:q:1 55; orders 5 a:p:9 3; customers a - 60; orders 6 a:p:2 61",
            feed().length(18, 24).keys("products", "p", "q").values("customers", oneOf("de", "fr")).values("products", oneOf("pen", "quill"))
                .weight("orders", 3).values("orders", (r, n) -> "abc".charAt(r.nextInt(3)) + ":" + "pq".charAt(r.nextInt(2)) + ":" + r.nextInt(10)));
        add("word-count-windows-and-total", "Mixed",
            "Stream `in` (string, string) -> flatMapValues(split at _) -> groupBy(word; named `words`) = g; g -> count(store `total`) = total; g -> tumbling 40 ms, grace 20 ms -> count(store `windowed`) -> toStream -> map((word, n + \"@\" + start)) -> join(total, v + \"/\" + total) -> `out`.",
            topics("> in s s", "< out s s"), Map.of(), (b, x) -> {
                var g = b.stream("in", SS).flatMapValues(v -> words(v)).groupBy((k, v) -> v, Grouped.with("words", S, S));
                var total = g.count(kv("total", L));
                g.windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(20))).count(win("windowed", L)).toStream()
                    .map((k, v) -> KeyValue.pair(k.key(), v + "@" + k.window().start()))
                    .join(total, (v, n) -> v + "/" + n, Joined.with(S, S, L)).to("out", Produced.with(S, S));
            },
            "in a x_y_x 0; in b y 10; in a x 50; in - y_y 30; in a - 51; in a x 5",
            feed().length(16, 22).values("in", phrase()));
        add("four-subtopologies", "Mixed",
            "Stream `in` (string, string) -> groupBy(v; named `one`) -> count(store `c1`) -> toStream -> map((\"n\" + count, word)) -> groupByKey(named `two`; string, string) -> aggregate(init \"\", agg + v; store `c2`) -> groupBy((length of v as text, k); named `three`; string, string) -> count(store `c3`) -> toStream -> `mid`; stream `mid` (string, long) -> groupByKey -> reduce(max; store `c4`) -> toStream -> filter(v > 1) -> `out`.",
            topics("> in s s", "* mid s l", "< out s l"), Map.of(), (b, x) -> {
                b.stream("in", SS).groupBy((k, v) -> v, Grouped.with("one", S, S)).count(kv("c1", L)).toStream()
                    .map((k, v) -> KeyValue.pair("n" + v, k)).groupByKey(Grouped.with("two", S, S)).aggregate(() -> "", (k, v, a) -> a + v, kv("c2", S))
                    .groupBy((k, v) -> KeyValue.pair("" + v.length(), k), Grouped.with("three", S, S)).count(kv("c3", L)).toStream().to("mid", Produced.with(S, L));
                b.stream("mid", SL).groupByKey(Grouped.with(S, L)).reduce(Math::max, kv("c4", L)).toStream().filter((k, v) -> v > 1).to("out");
            },
            "in a x 0; in b y 5; in a x 6; in - y 1; in c - 9; in c z 10; mid q 5 11",
            feed().length(21, 28).values("in", oneOf("x", "y", "z", "w")).keys("mid", "1", "2").values("mid", longs(5)));
        add("left-join-then-window", "Mixed",
            "Outer join emit interval 0. Streams `left`, `right` (string, string): leftJoin(l + \"+\" + r, difference 10 ms, grace 10 ms; named and stored `j`) -> selectKey(matched or lone, by the text null) -> groupByKey(named `grp`) -> tumbling 50 ms, grace 100 ms -> count(store `counts`) -> suppress(untilWindowCloses, unbounded) -> toStream -> `out`; the join also -> `joined`.",
            topics("> left s s", "> right s s", "< joined s s", "< out w50 l"), JOIN0, (b, x) -> {
                var j = b.stream("left", SS).leftJoin(b.stream("right", SS), (l, r) -> t(l) + "+" + t(r), JoinWindows.ofTimeDifferenceAndGrace(ms(10), ms(10)),
                    StreamJoined.with(S, S, S).withName("j").withStoreName("j"));
                j.to("joined", Produced.with(S, S));
                j.selectKey((k, v) -> v.endsWith("+null") ? "lone" : "matched").groupByKey(Grouped.with("grp", S, S))
                    .windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(100))).count(win("counts", L))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "left a x 0; right a y 5; left b z 10; left b w 40; right c v 41; left a u 90; left a t 300; right a s 301; left b r 600",
            feed().values("left", letters()));
        add("left-join-big-times", "Mixed",
            "Streams `left`, `right` (string, string), big times: leftJoin(l + \"+\" + r, difference 60 s, grace 30 s; named and stored `j`), default emit interval -> `out`.",
            topics("> left s s", "> right s s", "< out s s"), Map.of(), (b, x) -> {
                b.stream("left", SS).leftJoin(b.stream("right", SS), (l, r) -> t(l) + "+" + t(r), JoinWindows.ofTimeDifferenceAndGrace(ms(60_000), ms(30_000)),
                    StreamJoined.with(S, S, S).withName("j").withStoreName("j")).to("out", Produced.with(S, S));
            },
            "left a x 1700000000000; right a y 1700000030000; left b z 1700000100000; + 1000; left b w 1700000400000; right c v 1700000400000; + 1000; left a u 1700003600000; right a t 1700003540000; right b s 1700000400000; + 2000; left b r 1700007200000; right a q 1700000030000",
            big().advances(12, 1500).values("left", letters()));
        add("sessions-and-page-views", "Mixed",
            "Stream `clicks` (string, string page) -> groupByKey -> session windows, gap 30 ms, grace 30 ms -> aggregate(init \"\", agg + v, merger a + b; store `sessions`) -> toStream -> filter(v not null) -> map((key, v + \"[\" + start + \",\" + end + \"]\")) -> toTable(store `last`); clicks.leftJoin(that table, page + \"<\" + session) -> `views`; stream `logins` (string, string) -> leftJoin(that table, login + \"~\" + session) -> `out`.",
            topics("> clicks s s", "> logins s s", "< out s s", "< views s s"), Map.of(), (b, x) -> {
                var clicks = b.stream("clicks", SS);
                var last = clicks.groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(30), ms(30)))
                    .aggregate(() -> "", (k, v, a) -> a + t(v), (k, p, q) -> p + q, ses("sessions", S)).toStream().filter((k, v) -> v != null)
                    .map((k, v) -> KeyValue.pair(k.key(), v + "[" + k.window().start() + "," + k.window().end() + "]"))
                    .toTable(kv("last", S));
                clicks.leftJoin(last, (c, s) -> t(c) + "<" + t(s)).to("views", Produced.with(S, S));
                b.stream("logins", SS).leftJoin(last, (l, s) -> t(l) + "~" + t(s)).to("out", Produced.with(S, S));
            },
            "clicks a p 0; logins a l1 5; clicks a q 20; clicks b r 100; clicks a s 60; logins b l2 101; clicks a t 45; logins - l3 102; clicks - u 103; clicks a - 104",
            feed().weight("clicks", 2).values("clicks", letters()));
        add("top-of-groups", "Mixed",
            "Table `scores` (string, string \"team:points\"; store `scores`) -> filter(v contains \":\") -> groupBy((team, k + \"=\" + points); named `teams`) -> aggregate(init \"\", add agg + v + \";\", subtract: first occurrence of v + \";\" removed; store `teams`) -> mapValues(sorted parts joined by \",\") -> join(table `names` (string, string; store `names`), sorted + \"@\" + name) -> toStream -> `out`.",
            topics("> scores s s", "> names s s", "< out s s"), Map.of(), (b, x) -> {
                b.table("scores", SS, kv("scores", S)).filter((k, v) -> v.contains(":"))
                    .groupBy((k, v) -> KeyValue.pair(v.split(":")[0], k + "=" + v.split(":")[1]), Grouped.with("teams", S, S))
                    .aggregate(() -> "", (k, v, a) -> a + v + ";", (k, v, a) -> a.replaceFirst(java.util.regex.Pattern.quote(v + ";"), ""), kv("teams", S))
                    .mapValues(v -> java.util.Arrays.stream(v.split(";")).sorted().collect(java.util.stream.Collectors.joining(",")))
                    .join(b.table("names", SS, kv("names", S)), (v, n) -> v + "@" + n).toStream().to("out", Produced.with(S, S));
            },
            "scores a r:1 0; names r Red 5; scores b r:2 6; scores a g:3 2; names g Green 8; scores b - 9; scores c plain 10; names r - 11; scores c r:9 12",
            feed().keys("names", "r", "g").values("scores", (r, n) -> r.nextInt(6) == 0 ? "plain" : "rg".charAt(r.nextInt(2)) + ":" + n).weight("scores", 3));
        add("deduplicate-then-reduce", "Mixed",
            "Stream `in` (string, string) -> process named `dedup` (plain window store `seen`, retention 60 ms, size 60 ms: forwards a record of non-null key and value when fetch(key + value, ts - 30, ts + 30) is empty, then puts (key + value, \"1\") at ts) -> repartition(named `clean`) -> groupByKey -> hopping 60 ms by 30 ms, grace 20 ms -> reduce(a + v; store `red`) -> toStream -> selectKey(key) -> toTable(store `latest`) -> mapValues(length of v; long) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), Map.of(), (b, x) -> {
                b.addStateStore(Stores.windowStoreBuilder(Stores.persistentWindowStore("seen", ms(60), ms(60), false), S, S));
                b.stream("in", SS).process(Dedup::new, Named.as("dedup"), "seen").repartition(Repartitioned.with(S, S).withName("clean"))
                    .groupByKey(Grouped.with(S, S)).windowedBy(TimeWindows.ofSizeAndGrace(ms(60), ms(20)).advanceBy(ms(30)))
                    .reduce((a, v) -> a + v, win("red", S)).toStream().selectKey((k, v) -> k.key()).toTable(kv("latest", S))
                    .mapValues(v -> (long) v.length()).toStream().to("out", Produced.with(S, L));
            },
            "in a x 0; in a x 10; in a y 15; in a x 41; in b x 20; in a x 110; in a x 60; in - q 111; in a - 112",
            feed().length(21, 28).late(30, 80).values("in", oneOf("x", "y", "z")));
        add("headers-through-windows", "Mixed",
            "Stream `in` (string, string), headers -> groupByKey: tumbling 40 ms, grace 10 ms -> count(store `t`) -> suppress(untilWindowCloses, unbounded) -> toStream -> `closed`; session windows, gap 20 ms, grace 10 ms -> count(store `s`) -> toStream -> `sessions`; tumbling 40 ms, grace 10 ms, emit on close -> count(store `e`, retention 1000 ms) -> toStream -> `emitted`; toTable(store `tab`) -> suppress(untilTimeLimit 20 ms, unbounded) -> toStream -> `limited`.",
            topics("> in s s", "< closed w40 l", "< emitted w40 l", "< limited s s", "< sessions x l"), EMIT0, (b, x) -> {
                var in = b.stream("in", SS);
                var g = in.groupByKey();
                g.windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(10))).count(win("t", L)).suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("closed");
                g.windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(10))).count(ses("s", L)).toStream().to("sessions");
                g.windowedBy(TimeWindows.ofSizeAndGrace(ms(40), ms(10))).emitStrategy(EmitStrategy.onWindowClose()).count(win("e", L).withRetention(ms(1000))).toStream().to("emitted");
                in.toTable(kv("tab", S)).suppress(Suppressed.untilTimeLimit(ms(20), Suppressed.BufferConfig.unbounded())).toStream().to("limited");
            },
            "in a x 0; in a y 10; in b z 60; in a w 30; in a v 120; in a u 130; in c t 300",
            feed().length(13, 17).headers(50).values("in", letters()));
    }
}
