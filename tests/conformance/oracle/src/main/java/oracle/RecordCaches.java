package oracle;

import static oracle.Harness.ms;
import static oracle.Sketch.*;

import java.util.List;
import oracle.OwnProcessors.*;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

/** The record cache, large and tiny. */
final class RecordCaches {
    private RecordCaches() {}

    static void all() {
        cached();
    }

    private static void cached() {
        add("cached-count", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), cache(10485760), (b, x) -> {
                b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey().count(kv("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in b x 10; in a - 20; in a x 5; in - x_y 30",
            feed().values("in", phrase()));
        add("cached-reduce-null", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey -> reduce(null when v is DEL, else agg + v; store `red`) -> toStream -> `out`.",
            topics("> in s s", "< out s s"), cache(10485760), (b, x) -> {
                b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey().reduce((a, v) -> "DEL".equals(v) ? null : a + v, kv("red", S)).toStream().to("out");
            },
            "in a x_DEL 0; in a x 10; in a DEL 20; in a DEL_DEL 25; in a y_DEL_z 30; in a DEL 31; in b DEL 32",
            feed().values("in", phrase("x", "y", "DEL")));
        add("cached-tumbling", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> process values (each word i of the value, split at _, is forwarded with timestamp + 20 * i) -> groupByKey -> tumbling 50 ms, grace 30 ms -> aggregate(agg + \".\" + v; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out w50 s"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(30)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, win("agg", S)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45",
            feed().length(16, 22).values("in", phrase()));
        add("cached-hopping", "Record cache",
            "Cache of 10 MB. As cached-tumbling with hopping windows of 60 ms by 20 ms, grace 20 ms -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out w60 l"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(60), ms(20)).advanceBy(ms(20)))
                    .count(win("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45",
            feed().length(16, 22).values("in", phrase()));
        add("cached-session", "Record cache",
            "Cache of 10 MB. As cached-tumbling with session windows of gap 15 ms, grace 60 ms -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out x l"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(15), ms(60)))
                    .count(ses("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 47; in a q 130; in a r_s_t 95",
            feed().length(16, 22).values("in", phrase()));
        add("cached-session-aggregate", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> groupByKey -> session windows of gap 20 ms, grace 40 ms -> aggregate(agg + \".\" + v, merger \"(\" + a + \"&\" + b + \")\"; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out x s"), cache(10485760), (b, x) -> {
                b.stream("in", SS).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(20), ms(40)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + t(v), (k, p, q) -> "(" + p + "&" + q + ")", ses("agg", S)).toStream().to("out");
            },
            "in a x 0; in a y 30; in a z 15; in b w 40; in a v 80; in a u 60; in a t 50; in - q 90",
            feed().values("in", letters()));
        add("cached-sliding", "Record cache",
            "Cache of 10 MB. As cached-tumbling with sliding windows, difference 30 ms, grace 30 ms -> aggregate(agg + \".\" + v; store `agg`) -> toStream -> `out`.",
            topics("> in s s", "< out w30 s"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(30), ms(30)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, win("agg", S)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 95",
            feed().length(9, 13).values("in", phrase()));
        add("cached-tiny-count", "Record cache",
            "Cache of 200 bytes. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey: aggregate(agg + \".\" + v; store `agg`) -> toStream -> `out`; count(store `counts`) -> toStream -> `counts`.",
            topics("> in s s", "< counts s l", "< out s s"), cache(200), (b, x) -> {
                var g = b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey();
                g.aggregate(() -> "", (k, v, a) -> a + "." + v, kv("agg", S)).toStream().to("out");
                g.count(kv("counts", L)).toStream().to("counts");
            },
            "in a x_y_z 0; in b x_y 10; in a - 20; in a x_y_z 5; in c x_y_x_y_x_y 30; in a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_y 31; in b zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz_x_y_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz 33",
            feed().length(16, 22).values("in", phrase()));
        add("cached-tiny-hopping", "Record cache",
            "Cache of 400 bytes. As cached-hopping.",
            topics("> in s s", "< out w60 l"), cache(400), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(60), ms(20)).advanceBy(ms(20)))
                    .count(win("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45",
            feed().length(16, 22).values("in", phrase()));
        add("cached-tiny-session", "Record cache",
            "Cache of 250 bytes. As cached-session.",
            topics("> in s s", "< out x l"), cache(250), (b, x) -> {
                spread(b).groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(15), ms(60)))
                    .count(ses("counts", L)).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 47; in a q 130; in a r_s_t 95",
            feed().length(16, 22).values("in", phrase()));
        // Under pressure it matters what was used last, which a restart forgets: no random traces of these.
        for (final String tiny : List.of("cached-tiny-count", "cached-tiny-hopping", "cached-tiny-session")) definition(tiny).seeds(0);
        add("cached-table-filter", "Record cache",
            "Cache of 10 MB. Table `in` (string, long; store `tab`) -> filter(v even; store `even`) -> toStream -> `out`; the table also -> toStream -> `all`.",
            topics("> in s l", "< all s l", "< out s l"), cache(10485760), (b, x) -> {
                var table = b.table("in", SL, kv("tab", L));
                table.filter((k, v) -> v % 2 == 0, kv("even", L)).toStream().to("out");
                table.toStream().to("all");
            },
            "in a 2 0; in a 3 5; in b 1 10; in b 4 3; in a - 20; in c - 21; in a 6 22; in a 6 23",
            feed().values("in", longs(10)));
        add("cached-table-join", "Record cache",
            "Cache of 10 MB. Tables `left` and `right` (string, string; stores `ltab`, `rtab`): outerJoin(left + \"+\" + right; store `joined`) -> toStream -> `out`.",
            topics("> left s s", "> right s s", "< out s s"), cache(10485760), (b, x) -> {
                b.table("left", SS, kv("ltab", S)).outerJoin(b.table("right", SS, kv("rtab", S)), (l, r) -> t(l) + "+" + t(r), kv("joined", S)).toStream().to("out");
            },
            "left a x 0; right a 1 5; left a - 10; right a - 3; right b 2 20; left b y 15; right b - 30; left c - 31",
            feed().values("left", letters()).values("right", letters()));
        add("cached-table-self-join", "Record cache",
            "Cache of 10 MB. Table `in` (string, long; store `tab`): evens = filter(v even; store `even`); big = mapValues(v * 100; store `big`); evens.leftJoin(big, left + \"+\" + right) -> toStream -> `out`.",
            topics("> in s l", "< out s s"), cache(10485760), (b, x) -> {
                var table = b.table("in", SL, kv("tab", L));
                var evens = table.filter((k, v) -> v % 2 == 0, kv("even", L));
                var big = table.mapValues(v -> v * 100, kv("big", L));
                evens.leftJoin(big, (l, r) -> t(l) + "+" + t(r)).toStream().to("out", Produced.with(S, S));
            },
            "in a 2 0; in a 3 5; in b 1 10; in b 4 3; in a - 20; in c - 21; in a 6 22; in a 6 23",
            feed().values("in", longs(10)));
        add("cached-table-group-by", "Record cache",
            "Cache of 10 MB. Table `in` (string, long; store `tab`) -> groupBy((k, v) -> (\"g\" + v % 3, v); named `grp`; string, long) -> aggregate(init 0, add, subtract; store `sum`) -> mapValues(v + 1; store `plus`) -> toStream -> `out`.",
            topics("> in s l", "< out s l"), cache(10485760), (b, x) -> {
                b.table("in", SL, kv("tab", L)).groupBy((k, v) -> KeyValue.pair("g" + v % 3, v), Grouped.with("grp", S, L))
                    .aggregate(() -> 0L, (k, v, a) -> a + v, (k, v, a) -> a - v, kv("sum", L)).mapValues(v -> v + 1, kv("plus", L)).toStream().to("out");
            },
            "in a 1 0; in b 2 5; in a 4 10; in a 5 12; in b - 20; in c - 21; in a 2 15",
            feed().values("in", longs(9)));
        add("cached-cascade", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey -> count(store `counts`) -> toStream -> mapValues(v as text) -> peek(log \"peek key=value\") -> groupByKey(string, string) -> aggregate(init \"\", agg + \",\" + v; store `history`) -> toStream -> `out`; the first toStream also -> `counts`.",
            topics("> in s s", "< counts s l", "< out s s"), cache(10485760), (b, x) -> {
                var counts = b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey().count(kv("counts", L)).toStream();
                counts.mapValues(v -> "" + v).peek((k, v) -> x.add("peek " + t(k) + "=" + t(v))).groupByKey(Grouped.with(S, S))
                    .aggregate(() -> "", (k, v, a) -> a + "," + v, kv("history", S)).toStream().to("out");
                counts.to("counts");
            },
            "in a x_y_z 0; in b x 10; in a - 20; in a x 5; in - x_y 30; in a x_y 40",
            feed().length(20, 24).values("in", phrase()));
        add("cached-one-store-off", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> flatMapValues(split at _) -> groupByKey: count(store `loud`, caching disabled) -> toStream -> `loud`; count(store `quiet`) -> toStream -> `quiet`; tumbling 50 ms no grace count(store `loudw`, caching disabled) -> toStream -> `windows`.",
            topics("> in s s", "< loud s l", "< quiet s l", "< windows w50 l"), cache(10485760), (b, x) -> {
                var g = b.stream("in", SS).flatMapValues(v -> words(v)).groupByKey();
                g.count(kv("loud", L).withCachingDisabled()).toStream().to("loud");
                g.count(kv("quiet", L)).toStream().to("quiet");
                g.windowedBy(TimeWindows.ofSizeWithNoGrace(ms(50))).count(win("loudw", L).withCachingDisabled()).toStream().to("windows");
            },
            "in a x_y_z 0; in b x 10; in a - 20; in a x 5; in - x_y 30; in a x_y 60",
            feed().length(13, 17).values("in", phrase()));
        add("cached-suppress", "Record cache",
            "Cache of 10 MB. As cached-tumbling (50 ms, grace 20 ms, aggregate into `agg`) -> suppress(untilWindowCloses, unbounded) -> toStream -> `out`.",
            topics("> in s s", "< out w50 s"), cache(10485760), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20)))
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, win("agg", S))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45; in b x_y_z_w_v 150; in c x 400",
            feed().values("in", phrase()));
        add("cached-emit-close", "Record cache",
            "Cache of 10 MB. As cached-tumbling with EmitStrategy.onWindowClose (50 ms, grace 20 ms; store `agg`, retention 1000 ms).",
            topics("> in s s", "< out w50 s"), plus(cache(10485760), EMIT0), (b, x) -> {
                spread(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(ms(50), ms(20))).emitStrategy(EmitStrategy.onWindowClose())
                    .aggregate(() -> "", (k, v, a) -> a + "." + v, win("agg", S).withRetention(ms(1000))).toStream().to("out");
            },
            "in a x_y_z 0; in a w_v_u_t 10; in b x 10; in a - 20; in a x_y_z_w_v 40; in a q 130; in a r_s_t 45; in b x_y_z_w_v 150; in c x 400",
            feed().values("in", phrase()));
        add("cached-stream-table-join", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> s = flatMapValues(split at _); s -> groupByKey -> count(store `counts`) = table; s.leftJoin(table, value + \"/\" + count) -> `out`; table -> toStream -> `counts`.",
            topics("> in s s", "< counts s l", "< out s s"), cache(10485760), (b, x) -> {
                var s = b.stream("in", SS).flatMapValues(v -> words(v));
                var table = s.groupByKey().count(kv("counts", L));
                s.leftJoin(table, (v, n) -> v + "/" + t(n)).to("out", Produced.with(S, S));
                table.toStream().to("counts");
            },
            "in a x_y_z 0; in b x 10; in a - 20; in a x 5; in - x_y 30; in a x_y 60",
            feed().length(16, 22).values("in", phrase()));
        add("cached-punctuate", "Record cache",
            "Cache of 10 MB. Stream `in` (string, string) -> process (plain store `last`: remembers key -> value; every 50 ms of stream time and every 100 ms of wall clock forwards all rows (key, value) with the punctuation's time) -> repartition(named `re`) -> groupByKey -> count(store `counts`) -> toStream -> `out`.",
            topics("> in s s", "< out s l"), cache(10485760), (b, x) -> {
                b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("last"), S, S));
                b.stream("in", SS).process(() -> new LastValues(ms(50), ms(100)), "last").repartition(Repartitioned.with(S, S).withName("re"))
                    .groupByKey(Grouped.with(S, S)).count(kv("counts", L)).toStream().to("out");
            },
            "in a x 0; in b y 10; + 100; in a z 70; + 50; + 50; in c w 500",
            feed().advances(20, 1500).length(18, 24).values("in", letters()));
    }
}
