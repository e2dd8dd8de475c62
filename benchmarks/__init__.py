"""What the service costs, measured in one run: ``python -m benchmarks``, or ``make bench``.

::

    workloads.yaml -> workload -> verb, codec, evaluation, event, memory, start, -> report
                                  scale, load, bind_rate, overhead
                                  cluster, detail: what is measured on
                                  child: the programs that run in a process of their own

Each workload of ``workloads.yaml`` becomes rows of JSON on stdout and of a table on stderr. Servers are measured from
outside, by the processor time of their own process, so that the client does not count; absolute figures move with the
machine, and what is to be compared is the ratio to something simpler measured in the same run. Linux only.
"""
