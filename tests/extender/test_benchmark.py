"""The benchmarks run, and say what they should; what they measure is not looked at."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks import cluster
from benchmarks.detail import detailed_node, detailed_pod, encode, without_kind
from benchmarks.report import Row, row
from benchmarks.stopwatch import Sample
from benchmarks.workload import load_plan

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def quick() -> subprocess.CompletedProcess[str]:
    done = run("--quick")
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def rows(quick: subprocess.CompletedProcess[str]) -> list[Row]:
    return [msgspec.json.decode(line, type=Row) for line in quick.stdout.splitlines()]


def test_every_workload_has_a_row(rows: list[Row]) -> None:
    assert {found.workload for found in rows} == {workload.name for workload in load_plan().workloads}


def test_every_row_has_times_and_a_ratio_to_something_named(rows: list[Row]) -> None:
    for found in rows:
        assert found.unit
        assert found.wall_seconds > 0
        assert found.cpu_seconds > 0
        assert found.baseline
        assert found.ratio is not None
        assert found.ratio > 0
        # A small cluster may be known before the first request comes.
        assert all(value > 0 for name, value in found.figures.items() if name != "not_ready_answers")


def test_targets_are_judged_and_nothing_else_is(rows: list[Row]) -> None:
    targets = {workload.name: workload.target for workload in load_plan().workloads}
    for found in rows:
        assert found.target == targets[found.workload]
        assert (found.met is None) == (not found.target)


def test_stderr_has_the_table_alone_and_it_names_every_case(
    quick: subprocess.CompletedProcess[str], rows: list[Row]
) -> None:
    head, *lines = quick.stderr.splitlines()
    assert head.startswith("workload")
    for line, found in zip(lines, rows, strict=True):
        assert line.startswith(found.workload)
        assert found.case in line


def test_workloads_are_chosen_by_name() -> None:
    done = run("--quick", "--only", "codec")
    assert {json.loads(line)["workload"] for line in done.stdout.splitlines()} == {"codec"}


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    done = run("--only", "codex")
    assert done.returncode == 2
    assert "no workload named codex; there are filter-500-names" in done.stderr


@pytest.mark.parametrize(
    ("target", "met"),
    [
        ("ratio <= 2.5", True),
        ("ratio <= 1.5", False),
        ("per_second >= 10", True),
        ("per_second >= 11", False),
        ("ratio <= 2.5, per_second >= 10", True),
        ("ratio <= 2.5, per_second >= 11", False),
        ("ratio <= 1.5, per_second >= 10", False),
    ],
)
def test_a_target_is_met_on_its_own_side_of_the_bound(target: str, met: bool) -> None:
    assert row("w", "", "request", Sample(1.0, 1.0), ratio=2.0, target=target, per_second=10.0).met is met


def test_objects_have_the_size_of_real_ones() -> None:
    nodes = [len(encode(without_kind(detailed_node(node)))) for node in cluster.nodes(100)]
    pods = [len(encode(without_kind(detailed_pod(pod)))) for pod in cluster.pods(100, 100)]
    assert min(nodes) >= 8_000
    assert max(nodes) <= 12_000
    assert min(pods) >= 5_000
    assert max(pods) <= 7_000


def test_a_big_cluster_has_objects_and_five_kinds_of_pods_to_place() -> None:
    made = cluster.big(200, 1000)
    kinds = [item["kind"] for item in made["objects"]]
    assert (kinds.count("Namespace"), kinds.count("Node"), kinds.count("Pod")) == (20, 200, 1000)
    assert [pod["metadata"]["name"] for pod in made["pods"]] == [
        "plain",
        "nodeaffinity",
        "spread",
        "antiaffinity",
        "affinity",
    ]
    assert made == cluster.big(200, 1000)
