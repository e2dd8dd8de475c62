"""The documents that register the service: what they hold in each version, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.errors import ConfigurationError
from extender.registration import dialect
from extender.registration.commented import render
from extender.registration.decoding import decode
from extender.registration.document import adopt, joined, registration
from extender.registration.duration import format_duration, parse_duration
from extender.registration.entry import VERBS, TlsSettings
from extender.registration.finding import Severity
from extender.registration.kubeadm import patch
from extender.registration.request import Request
from extender.registration.rule import judge

URL = "http://127.0.0.1:8888/scheduler"
HTTPS = "https://10.0.0.1:8888"
AUTHORITY = TlsSettings(ca_file="/etc/kubernetes/extender/ca.crt")
PAIR = replace(AUTHORITY, cert_file="/etc/kubernetes/extender/tls.crt", key_file="/etc/kubernetes/extender/tls.key")


def built(request: Request) -> dict[str, Any]:
    return yaml.safe_load(registration(request.checked()))


def problems(request: Request) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as raised:
        request.checked()
    return raised.value.problems


# --- versions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "api_version"),
    [
        ("1.18", "v1"),
        ("1.19", "kubescheduler.config.k8s.io/v1beta1"),
        ("1.21.3", "kubescheduler.config.k8s.io/v1beta1"),
        ("v1.22", "kubescheduler.config.k8s.io/v1beta2"),
        ("1.23", "kubescheduler.config.k8s.io/v1beta3"),
        ("1.24", "kubescheduler.config.k8s.io/v1beta3"),
        ("1.25", "kubescheduler.config.k8s.io/v1"),
        ("v1.36.2+k3s1", "kubescheduler.config.k8s.io/v1"),
        ("1.99", "kubescheduler.config.k8s.io/v1"),
    ],
)
def test_a_release_gets_the_newest_version_it_reads(release: str, api_version: str) -> None:
    document = built(Request(URL, kubernetes=release))
    assert document["apiVersion"] == api_version
    assert document["kind"] == ("Policy" if api_version == "v1" else "KubeSchedulerConfiguration")


def test_the_default_is_all_verbs_by_names_in_the_newest_version() -> None:
    assert built(Request(URL + "/")) == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
        "extenders": [
            {
                "urlPrefix": URL,
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "bindVerb": "bind",
                "weight": 1,
                "nodeCacheCapable": True,
                "httpTimeout": "5s",
                "ignorable": False,
            }
        ],
    }


def test_a_policy_spells_https_its_own_way_and_counts_nanoseconds() -> None:
    document = built(Request(HTTPS, api_version="policy", tls=AUTHORITY, http_timeout="1m1.5s"))
    (entry,) = document.pop("extenders")
    assert document == {"apiVersion": "v1", "kind": "Policy"}
    assert entry["enableHttps"] is True
    assert "enableHTTPS" not in entry
    assert entry["httpTimeout"] == 61_500_000_000


@pytest.mark.parametrize("name", dialect.BY_NAME)
def test_in_every_version_all_that_is_written_is_read_back(name: str) -> None:
    request = Request(
        HTTPS,
        api_version=name,
        tls=replace(PAIR, server_name="extender.local"),
        managed_resources=("example.com/gpu=ignored", "example.com/fpga"),
        scheduler_names=() if name == "policy" else ("default-scheduler", "batch"),
        weight=7,
    )
    configuration, findings = decode(built(request))
    assert not findings
    assert configuration is not None
    (entry,) = configuration.entries
    assert dict(entry.verbs) == {verb: verb for verb in VERBS}
    assert entry.tls == request.tls
    assert entry.enable_https
    assert entry.verifies
    assert entry.timeout_seconds == 5
    assert entry.weight == 7
    assert [(item.name, item.ignored) for item in entry.managed_resources] == [
        ("example.com/gpu", True),
        ("example.com/fpga", False),
    ]
    if name != "policy":
        assert configuration.scheduler_names == ("default-scheduler", "batch")


@pytest.mark.parametrize(
    ("name", "points"), [("v1", 1200), ("v1beta3", 1200), ("v1beta2", 800), ("v1beta1", 800), ("policy", 800)]
)
def test_the_weight_is_explained_against_the_points_of_all_plug_ins(name: str, points: int) -> None:
    text = " ".join(registration(Request(URL, api_version=name, weight=3)).replace("#", "").split())
    assert "A score of 10 adds 10 x 10 x 3 = 300 points." in text
    assert f"All in-tree score plug-ins together add up to {points}," in text
    assert ("NodePreferAvoidPods adds 1000000" in text) == (name in ("v1beta1", "policy"))


def test_fields_that_people_get_wrong_are_explained_where_they_stand() -> None:
    lines = registration(Request("http://extender.kube-system.svc:8888", ignorable=True)).splitlines()
    for key, word in {
        "urlPrefix": "NO_PROXY",
        "filterVerb": "five minutes",
        "preemptVerb": "evicts pods",
        "bindVerb": "Only one extender",
        "nodeCacheCapable": "whole nodes",
        "httpTimeout": "a bare 5 is refused",
        "ignorable": "against its rules",
        "extenders": "percentageOfNodesToScore: 100",
        "clientConnection": "--kubeconfig does not count",
    }.items():
        place = next(number for number, line in enumerate(lines) if line.strip(" -").startswith(f"{key}:"))
        comment = []
        while lines[place - 1].lstrip().startswith("#"):
            place -= 1
            comment.insert(0, lines[place].strip(" #"))
        assert word in " ".join(comment), key
    assert any("ClusterFirstWithHostNet" in line for line in lines)


def test_what_certificates_and_managed_resources_mean_is_explained() -> None:
    tls = replace(PAIR, server_name="extender.local")
    request = Request(HTTPS, tls=tls, managed_resources=("example.com/gpu=ignored",))
    text = " ".join(registration(request).replace("#", "").split())
    for sentence in (
        "Without a caFile nothing would be verified.",
        "The caFile is read once, at start",
        "serverName must stand in the certificate",
        "The client certificate is read again when the files change",
        "Requests of the pod as a whole and of ephemeral containers do not count.",
        "A name may stand once in the whole file",
        "only the service looks whether the resource is enough",
    ):
        assert sentence in text
    assert "Nothing is verified: insecure." in registration(Request(HTTPS, tls=TlsSettings(insecure=True)))


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (Request("10.0.0.1:8888"), "--url: '10.0.0.1:8888' is no URL of HTTP; write it as http://"),
        (Request("http://h:99999"), "--url: 'http://h:99999' is no URL"),
        (Request(URL + "?x=1"), "--url: what follows ? or #"),
        (Request(URL + "/filter"), "--url: ends in filter"),
        (Request("http://me:secret@h"), "--url: name and password would stand in the events of pods"),
        (Request(URL, verbs=("/filter",)), "--verb: '/filter': the slash is kube-scheduler's own; write filter"),
        (Request(URL, verbs=("score",)), "--verb: 'score': is not served; the verbs are filter, prioritize"),
        (Request(URL, verbs=("bind", "bind")), "--verb: bind is named 2 times; name it once; only one extender may"),
        (Request(URL, verbs=()), "--verb: name at least one"),
        (
            Request(URL, verbs=("filter",), weight=3),
            "--weight: is that of scores, which are not asked for; leave it out, or add --verb prioritize",
        ),
        (Request(URL, kubernetes="1.5"), "--kubernetes: 1.5 is older than 1.17, the oldest that is written for"),
        (Request(URL, config_file="/etc/"), "--config-file: '/etc/' is a directory; name the file in it"),
        (Request(URL, weight=0), "--weight: must be from 1 to 1000000 with prioritize, got 0"),
        (Request(URL, managed_resources=("cpu",)), "--managed-resource: 'cpu' is no extended resource"),
        (Request(URL, managed_resources=("a.b/c", "a.b/c")), "--managed-resource: a.b/c is named 2 times"),
        (Request(URL, managed_resources=("a.b/c=yes",)), "--managed-resource: 'a.b/c=yes' must have the form"),
        (Request(URL, managed_resources=("a.b/c=ignored",), verbs=("bind",)), "nobody would look whether a.b/c"),
        (Request(URL, http_timeout="5"), "--http-timeout: '5' is no duration; write a number with a unit"),
        (Request(URL, http_timeout="-1s"), "--http-timeout: -1s would mean no limit at all"),
        (Request(URL, http_timeout="0s"), "--http-timeout: 0s would mean the default of 5s"),
        (Request(HTTPS), "--url: over HTTPS nothing is verified without a certificate authority"),
        (Request(URL, tls=AUTHORITY), "--ca-file: the URL is not of HTTPS"),
        (Request(HTTPS, tls=replace(AUTHORITY, insecure=True)), "--insecure: kube-scheduler does not start"),
        (Request(HTTPS, tls=replace(PAIR, key_file="")), "--cert-file, --key-file: a client certificate needs both"),
        (Request(HTTPS, tls=TlsSettings(ca_file="ca.crt")), "--ca-file: 'ca.crt' must be absolute"),
        (Request(HTTPS, tls=TlsSettings(insecure=True, server_name="x")), "--server-name: is not looked at with"),
        (Request(URL, kubernetes="next"), "--kubernetes: 'next' is no release of Kubernetes"),
        (Request(URL, api_version="v2"), "--api-version: must be one of v1, v1beta3"),
        (Request(URL, api_version="v1", kubernetes="1.24"), "v1 is read by kube-scheduler 1.25 and later, not by 1.24"),
        (Request(URL, kubernetes="1.18", scheduler_names=("a",)), "--scheduler-name: a Policy has no profiles"),
        (Request(URL, scheduler_names=("a", "a")), "--scheduler-name: 'a' must be a name, given once"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_had_is_refused_with_a_remedy(request_: Request, problem: str) -> None:
    (line,) = problems(request_)
    assert problem in line


def test_all_refusals_come_at_once() -> None:
    options = {line.partition(":")[0] for line in problems(Request("x", weight=0, http_timeout="", kubernetes="2"))}
    assert options == {"--url", "--weight", "--http-timeout", "--kubernetes"}


@given(
    st.builds(
        Request,
        st.sampled_from([URL, HTTPS, "http://h:1/", "https://e.ns.svc/a/b", "http://h/filter", "h"]),
        kubernetes=st.sampled_from(["", "1.18", "1.22", "1.36"]),
        api_version=st.sampled_from(["", "v1", "v1beta2", "policy"]),
        verbs=st.lists(st.sampled_from([*VERBS, "/filter"]), max_size=4).map(tuple),
        weight=st.sampled_from([None, -1, 0, 1, 10**6, 10**7]),
        managed_resources=st.lists(st.sampled_from(["a.b/c", "a.b/d=ignored", "cpu", ""]), max_size=2).map(tuple),
        ignorable=st.booleans(),
        http_timeout=st.sampled_from(["5s", "500ms", "1h", "0", "-1s", "5"]),
        tls=st.sampled_from([TlsSettings(), AUTHORITY, PAIR, TlsSettings(insecure=True)]),
    )
)
@settings(max_examples=300)
def test_whatever_is_not_refused_kube_scheduler_takes(request_: Request) -> None:
    try:
        request_.checked()
    except ConfigurationError:
        return
    configuration, findings = decode(built(request_))
    assert configuration is not None
    assert not [finding for finding in [*findings, *judge(configuration)] if finding.severity is Severity.ERROR]


# --- an existing file ------------------------------------------------------------------------------------------------

EXISTING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1beta3",
    "kind": "KubeSchedulerConfiguration",
    "percentageOfNodesToScore": 40,
    "extenders": [
        {"urlPrefix": "http://gpu", "bindVerb": "bind", "managedResources": [{"name": "example.com/gpu"}]},
    ],
}


def test_the_service_is_added_to_a_file_in_its_version_and_nothing_else_changes() -> None:
    request = adopt(Request(URL, verbs=("filter",)), EXISTING)
    document = yaml.safe_load(joined(request, EXISTING))
    added = document["extenders"].pop()
    assert document == EXISTING
    assert added["filterVerb"] == "filter"
    assert request.dialect.name == "v1beta3"


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (Request(URL), "only one extender may bind"),
        (Request(URL, verbs=("filter",), managed_resources=("example.com/gpu",)), "example.com/gpu stands at"),
        (Request(URL, api_version="v1"), "--add-to: the file is of version v1beta3, not v1"),
        (Request(URL, scheduler_names=("a",)), "--scheduler-name: the profiles of the file stay as they are"),
    ],
    ids=["a second binder", "a resource managed twice", "another version", "profiles"],
)
def test_what_does_not_go_with_the_file_is_refused(request_: Request, problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        joined(adopt(request_, EXISTING), EXISTING)
    assert problem in str(raised.value)


# --- kubeadm ---------------------------------------------------------------------------------------------------------


def patched(request: Request) -> tuple[list[str], dict[str, str]]:
    """Return the command of the patch, and the type of each mounted path."""
    spec = yaml.safe_load(patch(request.checked()))["spec"]
    (container,) = spec["containers"]
    volumes = {volume["name"]: volume["hostPath"] for volume in spec["volumes"]}
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == {
        name: source["path"] for name, source in volumes.items()
    }
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    return container["command"], {source["path"]: source["type"] for source in volumes.values()}


def test_the_patch_starts_kube_scheduler_with_the_file_and_without_flags_that_do_not_count() -> None:
    command, mounts = patched(Request(URL))
    assert command == [
        "kube-scheduler",
        "--authentication-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--authorization-kubeconfig=/etc/kubernetes/scheduler.conf",
        "--bind-address=127.0.0.1",
        "--config=/etc/kubernetes/scheduler-extender.yaml",
        "--leader-elect=true",
    ]
    assert mounts == {"/etc/kubernetes/scheduler-extender.yaml": "File"}


def test_a_policy_is_given_by_its_own_flag_beside_the_kubeconfig() -> None:
    command, _ = patched(Request(URL, kubernetes="1.17"))
    assert "--policy-config-file=/etc/kubernetes/scheduler-extender.yaml" in command
    assert "--kubeconfig=/etc/kubernetes/scheduler.conf" in command
    assert not any(word.startswith("--config=") for word in command)


@pytest.mark.parametrize(("release", "is_closed"), [("1.22", True), ("1.23", False), ("", False)])
def test_the_open_port_of_old_releases_stays_closed(release: str, is_closed: bool) -> None:
    command, _ = patched(Request(URL, kubernetes=release))
    assert ("--port=0" in command) == is_closed


def test_files_read_at_start_are_mounted_one_by_one_and_rotated_ones_with_their_directory() -> None:
    tls = TlsSettings(ca_file="/pki/ca.crt", cert_file="/client/tls.crt", key_file="/client/tls.key")
    _, mounts = patched(Request(HTTPS, tls=tls, kubeconfig="/home/me.conf"))
    assert mounts == {
        "/etc/kubernetes/scheduler-extender.yaml": "File",
        "/home/me.conf": "File",
        "/client": "Directory",
        "/pki/ca.crt": "File",
    }
    _, mounts = patched(Request(HTTPS, tls=PAIR))
    assert str(PurePosixPath(PAIR.ca_file).parent) in mounts
    assert PAIR.ca_file not in mounts


@pytest.mark.parametrize("file", ["/client.crt", "//client.crt", "/./client.crt", "/pki/../client.crt"])
def test_a_client_certificate_in_the_root_of_the_machine_cannot_be_mounted(file: str) -> None:
    tls = TlsSettings(ca_file="/pki/ca.crt", cert_file=file, key_file="/pki/client.key")
    with pytest.raises(ConfigurationError) as refusal:
        patch(Request(HTTPS, tls=tls).checked())
    assert refusal.value.problems == (
        f"--cert-file: {file}: its directory, the root of the machine, cannot be mounted into the static pod; "
        "put the file into one of its own, such as /etc/kubernetes/scheduler-extender",
    )


def test_an_authority_in_the_root_of_the_machine_is_mounted_by_itself() -> None:
    _, mounts = patched(Request(HTTPS, tls=TlsSettings(ca_file="/ca.crt")))
    assert mounts["/ca.crt"] == "File"


# --- durations and YAML ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("5s", 5 * 10**9),
        ("-1s", -(10**9)),
        ("0", 0),
        ("1h2m3.5s", 3_723_500_000_000),
        (".5ms", 500_000),
        ("1.s", 10**9),
        ("1µs", 1000),
        ("+2ns", 2),
    ],
)
def test_durations_are_those_of_go(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "5S", "5s ", "١s", "1e3s", "9999999h", "--1s", "."])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        parse_duration(text)


@given(st.integers(1, 2**62))
def test_a_duration_that_was_written_reads_the_same(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds


TEXT = st.text(st.sampled_from("ab0:-#'\"{[,]}&*!|>%@ \t\néß✓"), max_size=6)
SCALAR = st.none() | st.booleans() | st.integers() | TEXT
TREE = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))


@given(st.dictionaries(TEXT.filter(bool), TREE, max_size=4), TEXT)
def test_comments_change_nothing_about_a_tree(tree: dict[str, Any], comment: str) -> None:
    paths = ["", *tree, *(f"{key}[0]" for key in tree)]
    assert (yaml.safe_load(render(tree, dict.fromkeys(paths, comment))) or {}) == tree
