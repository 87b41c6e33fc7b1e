package oracle;

/** Joins, tables, names and the optimiser. */
public final class JoinsAndTables implements Harness.Area {
    @Override
    public void register(final Harness.Registry registry) {
        new Naming().register(registry);
        new Optimizer().register(registry);
        // Here the description matters more than the records.
        registry.definitions().forEach(definition -> definition.seeds(1).length(32, 36));
        new TableJoins().register(registry);
        new StreamTables().register(registry);
        new HeadersInJoins().register(registry);
        registry.definitions().forEach(definition -> {
            if (definition.seeds.length == 3) definition.seeds(definition.hasScenario() ? new int[] {0, 1} : new int[] {1});
            definition.length(46, 52);
        });
        new ForeignKeys().register(registry);
        new StreamStreams().register(registry);
        registry.definitions().forEach(definition -> {
            if (definition.seeds.length == 3 && !definition.hasScenario()) definition.seeds(1, 2);
            definition.length(46, 52);
        });
    }
}
