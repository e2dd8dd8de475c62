"""kube-scheduler-extender: placement rules in Python for kube-scheduler, called over HTTP.

The map, from the ground up; imports point downwards only, and a linter holds them to it::

    errors       every exception, and what each verb makes of a failure    journal  what one request goes through
    model        pure data: objects as decoded, quantities, selectors, the node table and its columns
    yaml_text    YAML, and the keys that stand in it twice
    section      sections of the configuration that name algorithms    tally  counts for metrics
    refusal      why a value is refused    layered_tree  a file, and over it what variables and flags set
    wire         extender/v1 JSON: bytes to requests, results to bytes     config, telemetry, tracing, schema  beside it
    framework    what an algorithm is, how it is found and run; the mirror of the cluster and its caches; no I/O
    cluster      the API server: credentials, client, list and watch, lease, events, an embedded server; all the I/O
    source       profiles from the configuration, from a Policy or from a KubeSchedulerConfiguration
    verbs        filter, prioritize, preempt, bind: one module each, request bytes to reply bytes
    trial        a configuration tried on nothing    reload  one put in the place of another
    runtime      wires the above from the configuration    health  whether the informers can be trusted
    access, protocol, tls   who may read management; limits of a connection; certificates of the ports
    debug        profiles, stacks, dumps and comparisons, for the management port
    app          routes; the only module that knows FastAPI      server  the two ports, signals, shutdown
    registration what kube-scheduler's own configuration says of extenders: read, judged, written
    testing      the shipped test kit      doctor  what is wrong around an extender      cli  the commands

The data flow::

    kube-scheduler --POST--> app --bytes--> verbs: wire.decode -> framework.runner(pod, nodes) -> wire.encode --bytes-->
    API server --watch--> cluster.reflector --objects--> framework.store -> framework.mirror: node table + caches
    /bind --> verbs.bind: assume in the mirror -> POST binding -> confirmed by the watch, or forgotten

One event loop owns all state. Filter, prioritize and preempt do not await between decoding and answering, so each sees
one consistent state without a lock; only bind and the informers await. What arrives is parsed when it arrives, never
when it is asked about. Simulation is applying events and undoing them (``Mirror.what_if``), so no algorithm has code
for preemption.

Where this differs from a plain reading of "each algorithm has its cache": the mirror, which folds events into the node
table and the caches, is pure and therefore lives in ``framework``; ``cluster`` delivers to it through the small
``Store`` protocol of ``model.kind`` and knows nothing of algorithms, so each can be tested without the other.
Management is served from a second thread, because one body of tens of megabytes keeps the loop of the verbs busy for
longer than a probe should wait.
"""
