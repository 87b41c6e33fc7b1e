package oracle;

import static oracle.Harness.LONG;
import static oracle.Harness.STRING;
import static oracle.Words.*;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TableJoined;

/** Foreign-key joins. */
final class ForeignKeys implements Harness.Area {
    private static final String GROUP = "Foreign-key joins";

    private static Harness.Definition two(final Harness.Registry r, final String name, final String description) {
        return strings(r, name, GROUP, description, "left", "right").random(Naming.fk());
    }

    @Override
    public void register(final Harness.Registry r) {
        strings(r, "fk-chained", GROUP, "left.join(right, fk = part before ':', plus) -> join(third, fk = last character, plus; store `end`).", "left", "right", "third")
            .random(Naming.fk().values("right", Inputs.oneOf("1", "2", "3")).keys("third", "1", "2", "3").nulls(3, 12))
            .dsl((b, e) -> table(b, "left").join(table(b, "right"), Words::foreignKey, PLUS)
                .join(table(b, "third"), Words::last, PLUS, Words.<String>as("end")).toStream().to("out"));
        strings(r, "fk-chained-left-materialized", GROUP, "left.leftJoin(right, fk, plus; named `f1`, store `mid`) -> leftJoin(third, fk = last character (null for l), plus; named `f2`).", "left", "right", "third")
            .random(Naming.fk().values("right", Inputs.oneOf("1", "2", "3")).keys("third", "1", "2", "3").nulls(3, 12))
            .dsl((b, e) -> table(b, "left")
                .leftJoin(table(b, "right"), Words::foreignKey, PLUS, TableJoined.<String, String>as("f1"), Words.<String>as("mid"))
                .leftJoin(table(b, "third"), v -> last(v).equals("l") ? null : last(v), PLUS, TableJoined.<String, String>as("f2"))
                .toStream().to("out"));
        two(r, "fk-over-filtered", "left.filter(last digit even).join(right.mapValues(v + '!').filter(not even second character), fk, plus): nothing materialized.")
            .dsl((b, e) -> table(b, "left").filter((k, v) -> even(v))
                .join(table(b, "right").mapValues(v -> v + "!").filterNot((k, v) -> v.charAt(1) % 2 == 0), Words::foreignKey, PLUS)
                .toStream().to("out"));
        two(r, "fk-left-over-filtered", "left.mapValues(v + '0').leftJoin(right.filter(last digit even), fk, plus; store `joined`).")
            .dsl((b, e) -> table(b, "left").mapValues(v -> v + "0")
                .leftJoin(table(b, "right").filter((k, v) -> even(v)), Words::foreignKey, PLUS, Words.<String>as("joined"))
                .toStream().to("out"));
        two(r, "fk-many-left-rows", "left.join(right, fk, plus): many left keys (lengths differ) per foreign key.")
            .random(Naming.fk().keys("left", "a", "b", "aa", "ab", "c", "B", "ä", "", "a0").values("left", Inputs.references("x", "xx")).keys("right", "x", "xx").weight("left", 2))
            .dsl((b, e) -> table(b, "left").join(table(b, "right"), Words::foreignKey, PLUS).toStream().to("out"));
        two(r, "fk-left-key-extractor", "left.leftJoin(right, fk = (k, v) -> k is 'a': 'x', 'b': part before ':', else null, plus; named `fk`).")
            .dsl((b, e) -> table(b, "left").leftJoin(table(b, "right"),
                    (String k, String v) -> k.equals("a") ? "x" : k.equals("b") ? reference(v) : null, PLUS,
                    TableJoined.<String, String>as("fk"))
                .toStream().to("out"));
        r.add("fk-long-foreign-keys", GROUP, "left (string, long).join(right (long, string), fk = v % 4 (null for 3), plus; store `joined`).")
            .source("left", STRING, LONG).source("right", LONG, STRING).sink("out", STRING, STRING)
            .random(Inputs.of().keys("right", 0L, 1L, 2L))
            .dsl((b, e) -> longs(b, "left", "ltab").<String, Long, String>join(
                    b.table("right", Consumed.with(Serdes.Long(), Serdes.String())),
                    v -> v % 4 == 3 ? null : (Long) (v % 4), PLUS, Words.<String>as("joined"))
                .toStream().to("out"));
        r.add("fk-long-left-keys", GROUP, "left (long, string).leftJoin(right, fk, plus); negative keys too: the order of a fan-out is that of the bytes.")
            .source("left", LONG, STRING).source("right", STRING, STRING).sink("out", LONG, STRING)
            .random(Naming.fk().keys("left", 1L, 2L, 256L, -1L, -256L).values("left", Inputs.references("x", "y")).keys("right", "x", "y"))
            .dsl((b, e) -> b.table("left", Consumed.with(Serdes.Long(), Serdes.String()))
                .leftJoin(table(b, "right"), Words::foreignKey, PLUS)
                .toStream().to("out", Produced.with(Serdes.Long(), Serdes.String())));
        strings(r, "fk-self", GROUP, "in.leftJoin(in, fk = part before ':' (null for n…), left + '<' + right): a table with itself.", "in")
            .random(Inputs.of().values("in", Inputs.references("a", "b", "c", "n")).nulls(3, 12))
            .dsl((b, e) -> {
                KTable<String, String> in = table(b, "in", "tab");
                in.leftJoin(in, Words::foreignKey, (l, v) -> l + "<" + v).toStream().to("out");
            });
        two(r, "fk-then-group-by", "left.join(right, fk, plus; store `joined`) -> groupBy((last character, k + v)) -> aggregate(add, subtract; `agg`).")
            .dsl((b, e) -> table(b, "left").join(table(b, "right"), Words::foreignKey, PLUS, Words.<String>as("joined"))
                .groupBy((k, v) -> KeyValue.pair(last(v), k + v)).aggregate(() -> "", ADD, SUBTRACT, as("agg")).toStream().to("out"));
        two(r, "fk-unmaterialized-then-group-by", "left.leftJoin(right, fk, plus) -> groupBy((k, v), named `grp`) -> aggregate(add, subtract; `agg`): the unmaterialized result is made a store.")
            .random(Naming.fk())
            .dsl((b, e) -> table(b, "left").leftJoin(table(b, "right"), Words::foreignKey, PLUS)
                .groupBy((k, v) -> KeyValue.pair(k, v), Grouped.as("grp")).aggregate(() -> "", ADD, SUBTRACT, as("agg")).toStream().to("out"));
        two(r, "fk-then-table-join", "joined = left.join(right, fk, plus); joined.outerJoin(left, plus) -> out; joined.filter(last digit even; store `f`) -> out.")
            .dsl((b, e) -> {
                KTable<String, String> left = table(b, "left");
                KTable<String, String> joined = left.join(table(b, "right"), Words::foreignKey, PLUS);
                joined.outerJoin(left, PLUS).toStream().to("out");
                joined.filter((k, v) -> even(v), as("f")).toStream().to("out");
            });
        two(r, "fk-stream-table-join", "joined = left.leftJoin(right, fk, plus); right.toStream.join(joined, plus) -> out.")
            .random(Naming.fk().keys("right", "x", "y", "a", "b"))
            .dsl((b, e) -> {
                KTable<String, String> right = table(b, "right");
                KTable<String, String> joined = table(b, "left").leftJoin(right, Words::foreignKey, PLUS);
                right.toStream().join(joined, PLUS).to("out");
            });
        two(r, "fk-aggregated-right", "left.leftJoin(stream right.groupByKey.count(), fk, plus).")
            .dsl((b, e) -> table(b, "left").leftJoin(stream(b, "right").groupByKey().count(), Words::foreignKey, PLUS).toStream().to("out"));
        two(r, "fk-aggregated-left", "stream left.groupByKey.reduce(the newer value, null when it ends with 5; store `red`).join(right, fk, plus; named `fk`).")
            .dsl((b, e) -> stream(b, "left").groupByKey().reduce((a, v) -> v.endsWith("5") ? null : v, as("red"))
                .join(table(b, "right"), Words::foreignKey, PLUS, TableJoined.<String, String>as("fk")).toStream().to("out"));
        two(r, "fk-versioned-left", "left versioned (`lv`, 60 ms).join(right (`rtab`), fk, plus).")
            .dsl((b, e) -> Words.versioned(b, "left", "lv", 60).join(table(b, "right", "rtab"), Words::foreignKey, PLUS).toStream().to("out"));
        two(r, "fk-versioned-right", "left (`ltab`).leftJoin(right versioned (`rv`, 60 ms), fk, plus; store `joined`).")
            .dsl((b, e) -> table(b, "left", "ltab").leftJoin(Words.versioned(b, "right", "rv", 60), Words::foreignKey, PLUS, Words.<String>as("joined")).toStream().to("out"));
        two(r, "fk-versioned-both", "left versioned (`lv`, 60 ms).leftJoin(right versioned (`rv`, 60 ms), fk, plus; store `joined`, versioned 60 ms).")
            .dsl((b, e) -> Words.versioned(b, "left", "lv", 60).leftJoin(Words.versioned(b, "right", "rv", 60), Words::foreignKey, PLUS, Words.<String>versioned("joined", 60)).toStream().to("out"));
        two(r, "fk-versioned-filtered", "left versioned (`lv`, 60 ms).filter(last digit even).join(right versioned (`rv`, 30 ms).mapValues(v + '!'), fk, plus).")
            .dsl((b, e) -> Words.versioned(b, "left", "lv", 60).filter((k, v) -> even(v))
                .join(Words.versioned(b, "right", "rv", 30).mapValues(v -> v + "!"), Words::foreignKey, PLUS).toStream().to("out"));
        two(r, "fk-optimized", "Tables as in unnamed-foreign-key-left-join, optimised: all.")
            .config(OPTIMIZE, "all").random(Naming.fk())
            .dsl((b, e) -> table(b, "left").leftJoin(table(b, "right"), Words::foreignKey, PLUS).toStream().to("out"));
        two(r, "fk-rekeyed-tables", "left.selectKey(k + k).toTable().join(right.toTable(store `rt`), fk, plus).")
            .dsl((b, e) -> stream(b, "left").selectKey((k, v) -> k + k).toTable()
                .join(stream(b, "right").toTable(as("rt")), Words::foreignKey, PLUS).toStream().to("out"));
    }
}
