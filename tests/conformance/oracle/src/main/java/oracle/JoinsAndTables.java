package oracle;

/** Joins, tables, names and the optimiser. */
public final class JoinsAndTables implements Harness.Area {
    @Override
    public void register(final Harness.Registry registry) {
        new Naming().register(registry);
        new Optimizer().register(registry);
        new TableJoins().register(registry);
        new ForeignKeys().register(registry);
        new StreamTables().register(registry);
        new StreamStreams().register(registry);
        new HeadersInJoins().register(registry);
    }
}
