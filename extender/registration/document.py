"""From a request to the document that registers the service, with comments on every field that people get wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from extender.errors import ConfigurationError
from extender.registration.commented import render
from extender.registration.decoding import decode
from extender.registration.dialect import AVOID_PODS, POINTS_PER_WEIGHT, Dialect
from extender.registration.duration import format_duration
from extender.registration.entry import TlsSettings
from extender.registration.finding import Severity
from extender.registration.request import Request
from extender.registration.rule import judge


def registration(request: Request) -> str:
    """Return a document of its own that registers the service, as YAML."""
    tree = _document(request)
    return render(tree, _head(request) | _entry_comments(request, "extenders[0]"))


def adopt(request: Request, existing: object) -> Request:
    """Return ``request`` in the version of ``existing``, a scheduler's configuration that it is to be added to.

    Raises ConfigurationError when ``existing`` is none, or another version was asked for.
    """
    configuration, findings = decode(existing)
    if configuration is None:
        raise ConfigurationError([f"--add-to: {finding}" for finding in findings])
    dialect = configuration.dialect
    if (request.api_version or request.kubernetes) and request.dialect != dialect:
        raise ConfigurationError(
            f"--add-to: the file is of version {dialect.name}, not {request.dialect.name}; leave the version out"
        )
    if request.scheduler_names:
        raise ConfigurationError("--scheduler-name: the profiles of the file stay as they are; leave the option out")
    return replace(request, api_version=dialect.name)


def joined(request: Request, existing: Mapping[str, Any]) -> str:
    """Return ``existing``, a scheduler's configuration, with the service as its last extender; comments are lost.

    Raises ConfigurationError when kube-scheduler would not take the outcome.
    """
    extenders = [*(existing.get("extenders") or []), _entry(request)]
    tree = {**existing, "extenders": extenders}
    configuration, findings = decode(tree)
    findings += judge(configuration) if configuration else []
    if problems := [f"--add-to: {finding}" for finding in findings if finding.severity is Severity.ERROR]:
        raise ConfigurationError(problems)
    return render(tree, _entry_comments(request, f"extenders[{len(extenders) - 1}]"))


# --- the tree --------------------------------------------------------------------------------------------------------


def _document(request: Request) -> dict[str, Any]:
    dialect = request.dialect
    tree: dict[str, Any] = {"apiVersion": dialect.api_version, "kind": dialect.kind}
    if not dialect.is_policy:
        tree["clientConnection"] = {"kubeconfig": request.kubeconfig}
        if request.scheduler_names:
            tree["profiles"] = [{"schedulerName": name} for name in request.scheduler_names]
    return {**tree, "extenders": [_entry(request)]}


def _entry(request: Request) -> dict[str, Any]:
    dialect = request.dialect
    entry: dict[str, Any] = {"urlPrefix": request.url.rstrip("/")}
    if request.address.scheme == "https":
        entry[dialect.https_key] = True
        entry["tlsConfig"] = _tls(request.tls)
    entry |= {f"{verb}Verb": verb for verb in request.verbs}
    if "prioritize" in request.verbs:
        entry["weight"] = request.score_weight
    nanoseconds = request.timeout_nanoseconds
    entry |= {
        "nodeCacheCapable": True,
        "httpTimeout": nanoseconds if dialect.is_policy else format_duration(nanoseconds),
        "ignorable": request.ignorable,
    }
    if request.resources:
        entry["managedResources"] = [
            {"name": resource.name} | ({"ignoredByScheduler": True} if resource.ignored else {})
            for resource in request.resources
        ]
    return entry


def _tls(tls: TlsSettings) -> dict[str, Any]:
    if tls.insecure:
        settings: dict[str, Any] = {"insecure": True}
    else:
        settings = {"caFile": tls.ca_file} | ({"serverName": tls.server_name} if tls.server_name else {})
    return settings | ({"certFile": tls.cert_file, "keyFile": tls.key_file} if tls.cert_file else {})


# --- the comments ----------------------------------------------------------------------------------------------------


def _head(request: Request) -> dict[str, str]:
    dialect = request.dialect
    spelling = (
        "Keys count in any case, unknown ones are overlooked. predicates and priorities left out mean the default ones."
        if dialect.is_policy
        else "Keys count by their exact spelling; an unknown one keeps kube-scheduler from starting."
    )
    beside = (
        "A second kube-scheduler needs a leaderElection.resourceName of its own. "
        "Pods choose it by spec.schedulerName, and extenders hold for every profile."
    )
    return {
        "": f"For kube-scheduler {dialect.releases}: kube-scheduler {dialect.flag}={request.config_file}\n"
        f"It is read once, at start: restart kube-scheduler after a change.\n{spelling}",
        "clientConnection": "With --config the flag --kubeconfig does not count: the file has to be named here.",
        "profiles": beside,
        "extenders": "A sample of the nodes is filtered, so a pod may be called unschedulable although a node outside "
        "the sample fits.\nOnly percentageOfNodesToScore: 100"
        + (", which a Policy cannot say," if dialect.is_policy else " on the top level")
        + " rules that out; in large clusters it costs most of the throughput.",
    }


def _entry_comments(request: Request, path: str) -> dict[str, str]:
    dialect = request.dialect
    comments = {
        "urlPrefix": _on_url(request),
        dialect.https_key: "The scheme of urlPrefix decides on HTTPS. "
        + ("Nothing is verified: insecure." if request.tls.insecure else "Without a caFile nothing would be verified."),
        "tlsConfig": _on_tls(request),
        "filterVerb": "A pod refused for a reason outside Kubernetes' own objects is tried again when something "
        "changes in the cluster, otherwise after up to five minutes.",
        "preemptVerb": "Without it preemption does not ask, and evicts pods for nodes that filter refuses all the "
        "same.",
        "bindVerb": "The service binds all pods that reach it. Only one extender in the file may have this key.",
        "weight": _on_weight(request.score_weight, dialect),
        "nodeCacheCapable": "Sends names of nodes, not whole nodes. With false, calls are many times slower, and "
        "kube-scheduler scores the nodes that come back as if no pod ran on them.",
        "httpTimeout": _on_timeout(dialect),
        "ignorable": _on_ignorable(request),
        "managedResources": _on_resources(request),
    }
    return {f"{path}.{key}": text for key, text in comments.items() if text}


def _on_url(request: Request) -> str:
    host = request.address.hostname or ""
    lines = [
        f"The verbs are appended: {request.url.rstrip('/')}/{request.verbs[0]}. HTTP_PROXY and HTTPS_PROXY of "
        f"kube-scheduler's pod apply to these calls: name {host} in its NO_PROXY."
    ]
    if "." in host and host.rstrip(".").split(".")[-1] in ("svc", "local"):
        lines.append(
            "On the host's network, where kube-scheduler mostly runs, names of Services do not resolve unless its pod "
            "has dnsPolicy: ClusterFirstWithHostNet. A ClusterIP always works."
        )
    return "\n".join(lines)


def _on_tls(request: Request) -> str:
    lines = (
        [] if request.tls.insecure else ["The caFile is read once, at start: restart kube-scheduler after a change."]
    )
    if request.tls.server_name:
        lines.append("serverName must stand in the certificate, as one of its alternative names.")
    if request.tls.cert_file:
        lines.append(
            "The client certificate is read again when the files change; one file without the other is ignored."
        )
    return "\n".join(lines)


def _on_weight(weight: int, dialect: Dialect) -> str:
    names = sorted(dialect.weights.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{name} {own}" for name, own in names if name != AVOID_PODS)
    most, total = POINTS_PER_WEIGHT * weight, dialect.in_tree_points
    lines = [
        "Needed with prioritizeVerb, 1 at least: without it kube-scheduler does not start.",
        f"A score of 10 adds 10 x 10 x {weight} = {most} points. All in-tree score plug-ins together add up to "
        f"{total}, and each 100 times its weight: {listed}.",
    ]
    if AVOID_PODS in dialect.weights:
        lines.append(
            f"{AVOID_PODS} adds {POINTS_PER_WEIGHT * dialect.weights[AVOID_PODS]} to all nodes but those to avoid."
        )
    if most > total:
        lines.append("This extender therefore decides alone.")
    return "\n".join(lines)


def _on_timeout(dialect: Dialect) -> str:
    form = (
        "In nanoseconds: 5 would be 5 ns, and a text such as 5s is refused."
        if dialect.is_policy
        else "A text with a unit: a bare 5 is refused."
    )
    return (
        f"For a whole call. {form} 0 means 5 s, and a negative one no limit at all.\n"
        "Keep it above server.bodyTimeoutSeconds and server.deadlineSeconds of the service."
    )


def _on_ignorable(request: Request) -> str:
    if request.ignorable:
        return (
            "true: while the service is down, or answers with an error, pods are placed without it, against its rules, "
            "and ignorable extenders are called after all others."
        )
    return "false: while the service is down no pod it is asked about is scheduled, its own included."


def _on_resources(request: Request) -> str:
    if not request.resources:
        return ""
    lines = [
        "Only pods whose containers or init containers name one of these, in requests or limits, reach the service, on "
        "all verbs. Requests of the pod as a whole and of ephemeral containers do not count.",
        "A name may stand once in the whole file and must be an extended resource: cpu is refused.",
    ]
    if any(resource.ignored for resource in request.resources):
        lines.append(
            "ignoredByScheduler: only the service looks whether the resource is enough, and the ignoredResources of "
            "NodeResourcesFit no longer count."
        )
    return "\n".join(lines)
