package oracle;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.IntStream;

/**
 * Usage: {@code Main <area class> <folder> [text the names must contain [first seed-last seed [config=value...]]]} writes
 * the traces of an area; {@code Main Check <folder of given traces> <folder>} replays the inputs of given traces for the
 * topologies of {@link Check}.
 */
public final class Main {
    private Main() {}

    public static void main(final String[] args) throws Exception {
        final Harness.Area area =
            (Harness.Area) Class.forName("oracle." + args[0]).getDeclaredConstructor().newInstance();
        final Harness.Registry registry = new Harness.Registry();
        area.register(registry);
        if (args[0].equals("Check")) {
            for (final Harness.Definition definition : registry.definitions())
                for (int seed = 0; seed < 3; seed++) {
                    final String file = definition.name + "." + seed + ".json";
                    Files.writeString(
                        Path.of(args[2], file), Runner.trace(definition, seed, Runner.steps(Path.of(args[1], file))));
                }
            return;
        }
        final String wanted = args.length > 2 ? args[2] : "";
        for (final Harness.Definition definition : registry.definitions())
            if (definition.name.contains(wanted)) {
                for (int i = 4; i < args.length; i++) {
                    final String[] entry = args[i].split("=");
                    definition.config(entry[0], entry[1].matches("\\d+") ? (Object) Integer.valueOf(entry[1]) : entry[1]);
                }
                for (final int seed : args.length > 3 ? seeds(args[3]) : definition.seeds) {
                    final String trace = Runner.trace(definition, seed, definition.steps(seed));
                    Files.writeString(Path.of(args[1], definition.name + "." + seed + ".json"), trace);
                }
            }
    }

    private static int[] seeds(final String range) {
        final String[] ends = range.split("-");
        return IntStream.rangeClosed(Integer.parseInt(ends[0]), Integer.parseInt(ends[1])).toArray();
    }
}
