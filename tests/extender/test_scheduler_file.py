"""What is wrong with a scheduler's configuration as it stands in its file, judged as kube-scheduler 1.36.2 does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import ConfigurationError
from extender.registration.decoding import decode
from extender.registration.finding import Finding, Severity
from extender.registration.rule import judge
from extender.registration.source import read_source
from tests.extender.examined import GOOD, configuration

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "data" / "cases"
URL = "http://127.0.0.1:8080/scheduler"


def judged(tree: Any) -> list[Finding]:
    decoded, findings = decode(tree)
    return findings + (judge(decoded) if decoded else [])


def lines(tree: Any, *severities: Severity) -> list[str]:
    return [str(finding) for finding in judged(tree) if finding.severity in severities]


def errors(tree: Any) -> list[str]:
    return lines(tree, Severity.ERROR)


def entry(**fields: Any) -> dict[str, Any]:
    """Return a good extender with other fields; None takes one out."""
    merged = {"urlPrefix": URL, **GOOD, **fields}
    return {key: value for key, value in merged.items() if value is not None}


# --- B09 -------------------------------------------------------------------------------------------------------------

FRAGMENTS = {
    case["id"]: case["extenders"]
    for case in yaml.safe_load((CASES / "B09-scheduler-config.yaml").read_text())["configs"]
}
OUTCOMES = dict(
    line.split(": ", 1)
    for line in (CASES / "B09-scheduler-config.expected.txt").read_text().partition("Per case:\n")[2].splitlines()
)
FLAGGED_ALTHOUGH_ACCEPTED = {
    "negative-timeout": ("extenders[0].httpTimeout", "-1s means no limit"),
    "zero-timeout-means-5s": ("extenders[0].httpTimeout", "0s does not mean no limit but 5s"),
    "no-scheme-in-urlPrefix": ("extenders[0].urlPrefix", "write it as http://127.0.0.1:8080"),
    "no-verbs-at-all": ("extenders[0]", "it is never called"),
}


def test_every_fragment_has_an_outcome() -> None:
    assert FRAGMENTS.keys() == OUTCOMES.keys() > FLAGGED_ALTHOUGH_ACCEPTED.keys()


@pytest.mark.parametrize("case", [pytest.param(case, id=f"B09 {case.replace('-', ' ')}") for case in FRAGMENTS])
def test_what_kube_scheduler_refuses_is_an_error_where_it_refuses(case: str) -> None:
    findings = judged(configuration(*FRAGMENTS[case]))
    refused = [finding for finding in findings if "does not start" in finding.problem]
    if OUTCOMES[case].startswith("REJECT"):
        (finding,) = refused
        assert finding.severity is Severity.ERROR
        # Go's message has the path, or the field's name after the struct's.
        assert finding.path in OUTCOMES[case] or finding.path.rpartition(".")[2] in OUTCOMES[case]
    else:
        assert not refused
    flagged = [(item.path, str(item)) for item in findings if item.severity is not Severity.NOTE]
    if case in FLAGGED_ALTHOUGH_ACCEPTED:
        path, text = FLAGGED_ALTHOUGH_ACCEPTED[case]
        assert any(where == path and text in line for where, line in flagged)
    elif OUTCOMES[case].startswith("accepted"):
        assert not flagged


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1beta3", "v1"])
def test_every_version_is_read_by_the_same_rules(version: str) -> None:
    tree = configuration(entry(weight=0)) | {"apiVersion": f"kubescheduler.config.k8s.io/{version}"}
    (line,) = errors(tree)
    assert line.startswith("extenders[0].weight: must be at least 1 with prioritizeVerb, is 0")


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ([], "is no object"),
        ({"kind": "ConfigMap", "data": {"a": "b"}}, "kind: is a ConfigMap"),
        ({"apiVersion": "kubescheduler.config.k8s.io/v1alpha1", "kind": "KubeSchedulerConfiguration"}, "apiVersion:"),
        (configuration(entry(), healthzBindAddress="0.0.0.0"), "healthzBindAddress: is a key that kube-scheduler"),
        (configuration(profiles=[{"extenders": []}], extenders=[entry()]), "extenders stand beside profiles, not"),
        (configuration(profiles={}, extenders=[entry()]), "profiles: must be a list, is a mapping"),
        (configuration(profiles=[1], extenders=[entry()]), "profiles[0]: must be an object, is 1"),
        (configuration(profiles=[{}, {"schedulerName": "default-scheduler"}], extenders=[entry()]), "names an earlier"),
        (configuration(entry(), percentageOfNodesToScore=101), "percentageOfNodesToScore: must be a whole number from"),
        (configuration("x"), "extenders[0]: must be an object, is the text 'x'"),
        (configuration(), "extenders: there are none"),
        (configuration(entry(weight="1")), "extenders[0].weight: must be a whole number, without quotes"),
        (configuration(entry(weight=2**63)), "extenders[0].weight: must be a whole number"),
        (configuration(entry(urlPrefix=1)), "extenders[0].urlPrefix: must be a text"),
        (configuration(entry(httpTimeout="5")), "extenders[0].httpTimeout: must be a duration with a unit"),
        (configuration(entry(tlsConfig={"caData": "%"})), "extenders[0].tlsConfig.caData: must be base64"),
        (configuration(entry(tlsConfig={"CAFile": "/x"})), "write caFile"),
        (configuration(entry(managedResources=["a.b/c"])), "extenders[0].managedResources[0]: must be an object"),
        (configuration(entry(filterVerb="/x?y")), "extenders[0].filterVerb"),
        (configuration(entry(preemptVerb="filter")), "filterVerb and preemptVerb are all 'filter'"),
        (configuration(entry(httpTimeout="1ms")), "1ms is too short for any call"),
        (
            configuration(entry(filterVerb=None, managedResources=[{"name": "a.b/c", "ignoredByScheduler": True}])),
            "nobody",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_mistakes_that_keep_it_from_working_are_errors(tree: Any, problem: str) -> None:
    found = [line for line in lines(tree, Severity.ERROR, Severity.WARNING) if problem in line]
    assert len(found) == 1, judged(tree)


def test_a_null_means_the_zero_value_as_in_go() -> None:
    nulls = dict.fromkeys(("bindVerb", "enableHTTPS", "tlsConfig", "managedResources", "ignorable"))
    tree = configuration({**entry(), **nulls}, profiles=None)
    assert not lines(tree, Severity.ERROR, Severity.WARNING)


# --- the old form ----------------------------------------------------------------------------------------------------


def policy(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Policy", "extenders": [entry(httpTimeout=None, **fields)]}


@pytest.mark.parametrize("key", ["enableHttps", "enableHTTPS", "EnableHTTPS"])
def test_a_policy_takes_keys_in_any_case(key: str) -> None:
    decoded, findings = decode(policy(**{key: True, "BindVerb": "bind"}))
    assert not findings
    assert decoded is not None
    assert decoded.entries[0].enable_https
    assert decoded.entries[0].verbs["bind"] == "bind"


def test_a_policy_overlooks_keys_it_does_not_know() -> None:
    (line,) = lines(policy(apiVersion="v1beta1"), Severity.ERROR, Severity.WARNING)
    assert line.startswith("extenders[0].apiVersion: is a key that kube-scheduler overlooks")


@pytest.mark.parametrize(
    ("timeout", "problem"),
    [
        ("5s", "must be a number of nanoseconds in a Policy, such as 5000000000 for 5 s, is the text '5s'"),
        (5, "5ns is too short for any call"),
        (30, "30ns is too short for any call"),
    ],
)
def test_the_timeout_of_a_policy_counts_nanoseconds(timeout: Any, problem: str) -> None:
    tree = policy()
    tree["extenders"][0]["httpTimeout"] = timeout
    (line,) = errors(tree)
    assert problem in line
    tree["extenders"][0]["httpTimeout"] = 5_000_000_000
    assert not errors(tree)


def test_a_policy_may_name_the_group_as_well() -> None:
    assert not errors(policy() | {"apiVersion": "kubescheduler.config.k8s.io/v1"})


# --- consequences ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"nodeCacheCapable": False}, "extenders[0].nodeCacheCapable: false sends whole nodes"),
        ({"filterVerb": "/filter"}, "many servers do not know //filter; write filter"),
        ({"urlPrefix": f"{URL}/filter"}, "ends in filter, and the verb is appended"),
        ({"urlPrefix": "http://me:secret@h"}, "has a name and a password, which every failed call writes"),
        ({"ignorable": True, "bindVerb": "bind"}, "the default binder binds the pod"),
        (
            {"ignorable": True, "managedResources": [{"name": "a.b/c", "ignoredByScheduler": True}]},
            "while the extender is down nobody looks whether a.b/c is enough",
        ),
        ({"tlsConfig": {"caFile": "/ca"}}, "starts with http://, so calls are not encrypted"),
        ({"enableHTTPS": True}, "starts with http://, so calls are not encrypted"),
        (
            {"urlPrefix": "https://h", "enableHTTPS": True},
            "without a certificate authority enableHTTPS means exactly that",
        ),
        (
            {"urlPrefix": "https://h", "tlsConfig": {"insecure": True}},
            "tlsConfig.insecure: the certificate of the extender",
        ),
        (
            {"urlPrefix": "https://h", "enableHTTPS": True, "tlsConfig": {"serverName": "x"}},
            "serverName counts for nothing",
        ),
        (
            {"urlPrefix": "https://h", "tlsConfig": {"caFile": "/ca", "certFile": "/crt"}},
            "tlsConfig.keyFile: is not set: the client certificate is not presented at all",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_works_otherwise_than_meant_is_a_warning(fields: dict[str, Any], problem: str) -> None:
    tree = configuration(entry(**fields))
    assert not errors(tree)
    (line,) = lines(tree, Severity.WARNING)
    assert problem in line


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"preemptVerb": None}, "preemption does not ask, and evicts pods for nodes that filter refuses"),
        ({"ignorable": True}, "pods are placed without it, against its rules"),
        (
            {"managedResources": [{"name": "a.b/c", "ignoredByScheduler": True}]},
            "only the extender looks whether a.b/c",
        ),
        ({"weight": 13}, "adds up to 1300 points, all in-tree score plug-ins together 1200"),
    ],
    ids=["no preempt verb", "fail open", "left to the extender", "outweighs everything"],
)
def test_what_follows_from_a_choice_is_a_note(fields: dict[str, Any], problem: str) -> None:
    tree = configuration(entry(**fields))
    assert not lines(tree, Severity.ERROR, Severity.WARNING)
    (line,) = lines(tree, Severity.NOTE)
    assert problem in line


def test_ignored_resources_of_a_profile_that_no_longer_count_are_a_warning() -> None:
    fit = {"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/foo"]}}
    managed = [{"name": "a.b/c", "ignoredByScheduler": True}]
    tree = configuration(entry(managedResources=managed), profiles=[{"pluginConfig": [fit]}])
    (line,) = lines(tree, Severity.WARNING)
    assert line.startswith("profiles[0].pluginConfig[0].args.ignoredResources: no longer counts")
    assert "extenders[0].managedResources[0].ignoredByScheduler replaces it" in line
    managed[0]["ignoredByScheduler"] = False
    assert not lines(
        configuration(entry(managedResources=managed), profiles=[{"pluginConfig": [fit]}]), Severity.WARNING
    )


def test_without_a_kubeconfig_in_the_file_the_flag_is_missed() -> None:
    (line,) = lines(configuration(entry(), clientConnection={}), Severity.NOTE)
    assert line.startswith("clientConnection.kubeconfig: is not set, and with --config the flag --kubeconfig")


# --- files -----------------------------------------------------------------------------------------------------------


def test_the_registration_of_this_project_has_no_mistake() -> None:
    source = read_source(ROOT / "scheduler-extender.yaml")
    assert not source.findings
    assert not judged(source.tree)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty"),
        (b"a: [", "is neither YAML nor JSON"),
        (b"a: !!python/object:os.system {}", "is neither YAML nor JSON"),
        (b"a: 2026-99-99", "is neither YAML nor JSON"),
        (b"\xff\xfe\x00", "is no text"),
        (b"\x00", "is neither YAML nor JSON"),
    ],
    ids=["missing", "empty", "cut off", "with a tag", "a day that is none", "binary", "with a null byte"],
)
def test_a_file_that_cannot_be_read_is_said_to_be(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "scheduler.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError) as raised:
        read_source(file)
    assert str(raised.value).startswith(f"{file}: ")
    assert problem in str(raised.value)


def test_keys_given_twice_and_further_documents_are_found(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("kind: A\nextenders:\n- weight: 1\n  weight: 2\n---\nb: 1\n")
    source = read_source(file)
    assert source.tree == {"kind": "A", "extenders": [{"weight": 2}]}
    assert [(finding.path, finding.problem) for finding in source.findings] == [
        ("extenders[0].weight", "stands in line 3 and again in line 4: kube-scheduler does not start"),
        ("", "kube-scheduler reads the first document only; what follows --- does not count"),
    ]


def test_the_same_key_in_two_mappings_is_no_repetition(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("extenders: [{weight: 1}, {weight: 1}]\nweight: 1\n")
    assert not read_source(file).findings


WORDS = st.sampled_from(
    ["extenders", "profiles", "urlPrefix", "filterVerb", "httpTimeout", "weight", "tlsConfig", "managedResources", "x"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.integers(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, VALUES), st.sampled_from(["v1", "v1beta1"]), st.sampled_from(["Policy", "", "x"]))
def test_no_content_brings_the_reader_down(tree: dict[str, Any], version: str, kind: str) -> None:
    head = {"apiVersion": version, "kind": kind} if kind else configuration()
    judged({**head, **tree})
