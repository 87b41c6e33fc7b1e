package oracle;

/** Windows, suppress, emit on close, the record cache, cogroup, processors, errors, timestamps, stateless and mixed. */
public final class WindowsAndMore implements Harness.Area {
    @Override
    public void register(final Harness.Registry registry) {
        Sketch.begin(registry);
        WindowedStreams.all();
        SuppressAndClose.all();
        RecordCaches.all();
        Cogroups.all();
        ProcessorApi.all();
        ErrorsAndTimes.all();
        StatelessSteps.all();
        MixedSteps.all();
        WindowEdges.all();
    }
}
