"""What a request waits for while changes come in, next to the same request while nothing changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from time import perf_counter
from urllib.request import urlopen

from benchmarks.process import Child
from benchmarks.report import Row, row
from benchmarks.request import Connection, bodies
from benchmarks.stopwatch import Sample
from benchmarks.workload import Load, Plan, Verb

_LISTS = 32
_QUIET_SECONDS = 2.0
_POD_EVENTS = re.compile(r'^scheduler_extender_informer_events_total\{.*resource="pods".*\} (\S+)$', re.MULTILINE)


def measure(plan: Plan, workloads: Sequence[Load]) -> Iterator[Row]:
    """Yield a row a workload."""
    for workload in workloads:
        yield _measure(plan, workload)


def _measure(plan: Plan, workload: Load) -> Row:
    size = plan.cluster
    with Child("apiserver", size.nodes, size.pods, 0) as api, Child("service", api.read()["url"]) as service:
        ports = service.read()
        service.read()  # it is synced
        asked = bodies(Verb(name="", verb="filter", names=size.nodes, lists=_LISTS), size, 0)
        with Connection(ports["url"]) as connection, ThreadPoolExecutor(1) as reader:

            def ask(is_over: Callable[[], bool]) -> list[float]:
                waits = [connection.post("filter", next(asked))[1] for _ in range(2)]
                while not is_over():
                    waits.append(connection.post("filter", next(asked))[1])
                return waits

            quiet_end = perf_counter() + min(_QUIET_SECONDS, workload.seconds)
            quiet = ask(lambda: perf_counter() > quiet_end)
            api.write(churn=workload.events_per_second * workload.seconds, per_second=workload.events_per_second)
            api.read()  # it begins
            told = reader.submit(api.read)
            before, cpu, started = _pod_events(ports["management_url"]), service.cpu_seconds(), perf_counter()
            waits = ask(told.done)
            wall, cpu = perf_counter() - started, service.cpu_seconds() - cpu
            taken_in = _pod_events(ports["management_url"]) - before
    return row(
        workload.name,
        f"{workload.events_per_second} events a second",
        "request",
        Sample(median(waits), cpu / len(waits)),
        baseline="without events",
        ratio=median(waits) / median(quiet),
        target=workload.target,
        p50_milliseconds=median(waits) * 1e3,
        p99_milliseconds=_p99(waits) * 1e3,
        longest_milliseconds=max(waits) * 1e3,
        quiet_p99_milliseconds=_p99(quiet) * 1e3,
        requests=len(waits),
        told_per_second=told.result()["per_second"],
        taken_in_per_second=taken_in / wall,
        service_cpu_share=cpu / wall,
    )


def _p99(waits: list[float]) -> float:
    return quantiles(waits, n=100, method="inclusive")[-1]


def _pod_events(management_url: str) -> float:
    """Return how many events of pods the service has taken in."""
    with urlopen(f"{management_url}/metrics") as answer:
        return sum(map(float, _POD_EVENTS.findall(answer.read().decode())))
