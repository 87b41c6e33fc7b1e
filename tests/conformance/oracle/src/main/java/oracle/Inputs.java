package oracle;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Random inputs, the same for the same topology name and seed. Time walks on by 0..step per record; a record is late by
 * up to maxLate with some probability; now and then time jumps. Probabilities are in per cent. Seed 0 is a third as long.
 */
public final class Inputs {
    /** Makes the value of the n-th record. */
    public interface Values {
        Object make(Random random, int n);
    }

    private final Map<String, Object[]> keys = new LinkedHashMap<>();
    private final Map<String, Values> values = new LinkedHashMap<>();
    private final Map<String, Integer> weights = new LinkedHashMap<>();
    private String alike;
    private int nullKeys = 3;
    private int nullValues = 8;
    private int late = 25;
    private int maxLate = 40;
    private int step = 8;
    private int jumps = 2;
    private int jump = 150;
    private int advances;
    private int maxAdvance = 600;
    private int headers;
    private int least = 60;
    private int most = 68;
    private boolean lengthGiven;

    private Inputs() {}

    public static Inputs of() {
        return new Inputs();
    }

    /** Give the keys of a topic, in place of a, b, c (or 1, 2, 3). */
    public Inputs keys(final String topic, final Object... keys) {
        this.keys.put(topic, keys);
        return this;
    }

    /** Give the values of a topic, in place of its first letter and a number (or 0..20). */
    public Inputs values(final String topic, final Values values) {
        this.values.put(topic, values);
        return this;
    }

    /** Make a topic more frequent: every topic has weight 1 unless said. */
    public Inputs weight(final String topic, final int weight) {
        weights.put(topic, weight);
        return this;
    }

    /** Use the same inputs as another topology of this name would have. */
    public Inputs alike(final String name) {
        alike = name;
        return this;
    }

    public Inputs nulls(final int keys, final int values) {
        nullKeys = keys;
        nullValues = values;
        return this;
    }

    public Inputs late(final int percent, final int maxLateMs) {
        late = percent;
        maxLate = maxLateMs;
        return this;
    }

    public Inputs step(final int maxMs) {
        step = maxMs;
        return this;
    }

    public Inputs jumps(final int percent, final int ms) {
        jumps = percent;
        jump = ms;
        return this;
    }

    public Inputs advances(final int percent, final int maxMs) {
        advances = percent;
        maxAdvance = maxMs;
        return this;
    }

    public Inputs headers(final int percent) {
        headers = percent;
        return this;
    }

    public Inputs length(final int least, final int most) {
        this.least = least;
        this.most = most;
        lengthGiven = true;
        return this;
    }

    void lengthUnlessGiven(final int least, final int most) {
        if (!lengthGiven) length(least, most);
    }

    /** Values "ref:n" with one of the references. */
    public static Values references(final String... references) {
        return (random, n) -> references[random.nextInt(references.length)] + ":" + n;
    }

    /** Values out of a few. */
    public static Values oneOf(final Object... choices) {
        return (random, n) -> choices[random.nextInt(choices.length)];
    }

    List<Harness.Step> steps(final Harness.Definition definition, final int seed) {
        final Random random = new Random((alike == null ? definition.name : alike).hashCode() * 31L + seed);
        final List<String> topics = new ArrayList<>();
        definition.topics.forEach((name, topic) -> {
            if (topic.isSource())
                for (int i = 0; i < weights.getOrDefault(name, 1); i++) topics.add(name);
        });
        int length = least + random.nextInt(most - least + 1);
        if (seed == 0) length /= 3;
        final List<Harness.Step> steps = new ArrayList<>();
        long now = 0;
        for (int n = 1; n <= length; n++) {
            if (random.nextInt(100) < advances) {
                steps.add(Harness.advance(1 + random.nextInt(maxAdvance)));
                continue;
            }
            final String name = topics.get(random.nextInt(topics.size()));
            final Harness.Topic topic = definition.topics.get(name);
            now += random.nextInt(step + 1);
            if (random.nextInt(100) < jumps) now += jump;
            long ts = now;
            if (random.nextInt(100) < late) ts = Math.max(0, now - random.nextInt(maxLate + 1));
            final Object[] choices = keys.getOrDefault(
                name, topic.key() == Harness.LONG ? new Object[] {1L, 2L, 3L} : new Object[] {"a", "b", "c"});
            final Object key = random.nextInt(100) < nullKeys ? null : choices[random.nextInt(choices.length)];
            final Values make = values.getOrDefault(name, topic.value() == Harness.LONG
                ? (r, i) -> (long) r.nextInt(21)
                : (r, i) -> name.substring(0, 1).toUpperCase() + i);
            final Object value = random.nextInt(100) < nullValues ? null : make.make(random, n);
            final String[] given = random.nextInt(100) < headers
                ? (random.nextInt(4) == 0 ? new String[] {"h", "h" + n, "h", "x"} : new String[] {"h", "h" + n})
                : new String[0];
            steps.add(Harness.in(name, key, value, ts, given));
        }
        return steps;
    }
}
