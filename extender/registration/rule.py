"""What is wrong with extenders that kube-scheduler can decode, and what follows from them.

Sources: validateExtenders of ``pkg/scheduler/apis/config/validation``, ``extender.go``, ``scheduler.go``
(buildExtenders) and ``schedule_one.go`` of kube-scheduler 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from extender.model.name import is_qualified_name
from extender.model.request import is_extended_resource
from extender.registration.dialect import POINTS_PER_WEIGHT
from extender.registration.duration import format_duration
from extender.registration.entry import VERBS, Entry, SchedulerConfiguration
from extender.registration.finding import Finding, error, note, warning

_SHORTEST_SENSIBLE_NANOSECONDS = 10_000_000


def judge(configuration: SchedulerConfiguration) -> list[Finding]:
    """Return the findings about all extenders of a document, in its order."""
    findings = list(_document(configuration))
    for entry in configuration.entries:
        for rule in _RULES:
            findings += rule(entry)
    return findings


# --- the document ----------------------------------------------------------------------------------------------------


def _document(configuration: SchedulerConfiguration) -> Iterator[Finding]:
    entries = configuration.entries
    if not entries:
        yield error("extenders", "there are none, so kube-scheduler calls nobody", "see: scheduler-extender register")
    yield from _connection(configuration)
    yield from _profiles(configuration)
    binders = [entry.path for entry in entries if "bind" in entry.verbs]
    if len(binders) > 1:
        yield error(
            "extenders",
            f"bindVerb stands in {_listed(binders)}: only one extender may bind, and kube-scheduler does not start",
            "keep the one whose extender must write something together with the binding",
        )
    yield from _shared_resources(configuration)
    yield from _order(entries)
    for entry in entries:
        if "prioritize" in entry.verbs and entry.weight * POINTS_PER_WEIGHT > configuration.dialect.in_tree_points:
            yield note(
                f"{entry.path}.weight",
                f"adds up to {entry.weight * POINTS_PER_WEIGHT} points, all in-tree score plug-ins together "
                f"{configuration.dialect.in_tree_points}: this extender decides alone",
            )


def _connection(configuration: SchedulerConfiguration) -> Iterator[Finding]:
    connection = configuration.tree.get("clientConnection")
    if not configuration.dialect.is_policy and not (isinstance(connection, dict) and connection.get("kubeconfig")):
        yield note(
            "clientConnection.kubeconfig",
            "is not set, and with --config the flag --kubeconfig does not count: kube-scheduler reaches the API server "
            "by the service account of its pod, which a static pod does not have",
            "name the kubeconfig here, such as /etc/kubernetes/scheduler.conf",
        )


def _profiles(configuration: SchedulerConfiguration) -> Iterator[Finding]:
    sections = {"": configuration.tree} | {
        f"profiles[{place}].": profile for place, profile in enumerate(configuration.profiles)
    }
    seen: set[object] = set()
    for path, section in sections.items():
        percentage = section.get("percentageOfNodesToScore")
        if percentage is not None and percentage not in range(101):
            yield error(f"{path}percentageOfNodesToScore", f"must be a whole number from 0 to 100, is {percentage}")
        name = section.get("schedulerName") or "default-scheduler"
        if path and name in seen:
            yield error(f"{path}schedulerName", f"{name} names an earlier profile too: kube-scheduler does not start")
        seen.add(name if path else None)


def _shared_resources(configuration: SchedulerConfiguration) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    ignored = []
    for entry in configuration.entries:
        for place, resource in enumerate(entry.managed_resources):
            path = f"{entry.path}.managedResources[{place}]"
            if resource.name in seen:
                yield error(
                    f"{path}.name",
                    f"{resource.name} stands at {seen[resource.name]} already: kube-scheduler does not start",
                    "a resource may be managed once in the whole file",
                )
            seen.setdefault(resource.name, f"{path}.name")
            if resource.ignored:
                ignored.append(f"{path}.ignoredByScheduler")
    for place, profile in enumerate(configuration.profiles if ignored else ()):
        for number, plugin in enumerate(_items(profile.get("pluginConfig"))):
            if isinstance(plugin, dict) and plugin.get("name") == "NodeResourcesFit" and _ignored_resources(plugin):
                yield warning(
                    f"profiles[{place}].pluginConfig[{number}].args.ignoredResources",
                    f"no longer counts: {ignored[0]} replaces it",
                    "name its resources as managed ones as well, or do without ignoredByScheduler",
                )


def _ignored_resources(plugin: dict[str, object]) -> bool:
    args = plugin.get("args")
    return isinstance(args, dict) and bool(args.get("ignoredResources"))


def _order(entries: tuple[Entry, ...]) -> Iterator[Finding]:
    last = max((place for place, entry in enumerate(entries) if not entry.ignorable), default=-1)
    for entry in entries[: max(last, 0)]:
        if entry.ignorable:
            yield note(f"{entry.path}.ignorable", f"it is called after {entries[last].path}: ignorable ones come last")


# --- one extender ----------------------------------------------------------------------------------------------------


def _address(entry: Entry) -> Iterator[Finding]:
    path = f"{entry.path}.urlPrefix"
    address = entry.address
    if address is None:
        example = f"http://{entry.url_prefix.strip('/') or '127.0.0.1:8888/scheduler'}"
        problem = f"{entry.url_prefix!r} is no URL with a scheme and a host" if entry.url_prefix else "is not set"
        yield error(path, f"{problem}: every call fails", f"write it as {example}")
        return
    if address.username is not None:
        yield warning(
            path,
            "has a name and a password, which every failed call writes into the events of the pod",
            "have kube-scheduler present a certificate: tlsConfig.certFile and keyFile",
        )
    if address.query or address.fragment:
        yield error(
            path,
            f"what follows {'?' if address.query else '#'} takes the verb along: all verbs go to {address.path or '/'}",
            "leave it out; a path can tell services apart",
        )
    elif (last := address.path.rstrip("/").rpartition("/")[2]) and last in entry.verbs.values():
        yield warning(
            path, f"ends in {last}, and the verb is appended: {entry.url_prefix.rstrip('/')}/{last}", "leave it out"
        )


def _verbs(entry: Entry) -> Iterator[Finding]:
    if not entry.verbs:
        keys = _listed([f"{verb}Verb" for verb in VERBS])
        yield error(entry.path, f"has none of {keys}: it is never called", "set filterVerb: filter and the others")
    for verb, word in entry.verbs.items():
        path = f"{entry.path}.{verb}Verb"
        if word.startswith("/"):
            yield warning(
                path,
                f"{word!r} is appended behind a slash of its own: many servers do not know {'/' + word}",
                f"write {word.lstrip('/')}",
            )
        elif any(char in word for char in "?# ") or "//" in word:
            yield error(path, f"{word!r} is no part of a path", f"write {verb}")
    words = list(entry.verbs.values())
    for word in dict.fromkeys(words):
        if words.count(word) > 1:
            twins = [f"{verb}Verb" for verb, own in entry.verbs.items() if own == word]
            yield error(entry.path, f"{_listed(twins)} are all {word!r}: one route gets several kinds of request")
    if "filter" in entry.verbs and "preempt" not in entry.verbs:
        yield note(
            f"{entry.path}.preemptVerb",
            "is not set: preemption does not ask, and evicts pods for nodes that filter refuses all the same",
            "set preemptVerb: preempt if the extender serves it",
        )


def _weight(entry: Entry) -> Iterator[Finding]:
    if "prioritize" in entry.verbs and entry.weight <= 0:
        yield error(
            f"{entry.path}.weight",
            f"must be at least 1 with prioritizeVerb, is {entry.weight}: kube-scheduler does not start",
            "set weight: 1",
        )


def _timeout(entry: Entry) -> Iterator[Finding]:
    path, nanoseconds = f"{entry.path}.httpTimeout", entry.timeout_nanoseconds
    if nanoseconds is None:
        return
    shown = format_duration(nanoseconds)
    if nanoseconds == 0:
        yield warning(path, f"{shown} does not mean no limit but 5s", "write what is meant, or leave it out")
    elif nanoseconds < 0:
        yield warning(
            path,
            f"{shown} means no limit: an extender that hangs stops all scheduling for as long as it hangs",
            "set httpTimeout: 5s",
        )
    elif nanoseconds < _SHORTEST_SENSIBLE_NANOSECONDS:
        yield error(path, f"{shown} is too short for any call", "set 5 s: 5s, or 5000000000 in a Policy")


def _mode(entry: Entry) -> Iterator[Finding]:
    if not entry.node_cache_capable and {"filter", "prioritize", "preempt"} & entry.verbs.keys():
        yield warning(
            f"{entry.path}.nodeCacheCapable",
            "false sends whole nodes: calls are many times slower, and kube-scheduler scores the nodes that come back "
            "as if no pod ran on them",
            "set nodeCacheCapable: true if the extender takes NodeNames",
        )


def _resources(entry: Entry) -> Iterator[Finding]:
    for place, resource in enumerate(entry.managed_resources):
        path = f"{entry.path}.managedResources[{place}]"
        if not (is_qualified_name(resource.name) and is_extended_resource(resource.name)):
            yield error(
                f"{path}.name",
                f"{resource.name!r} is no extended resource: kube-scheduler does not start",
                "only names such as example.com/gpu can be managed, not cpu or memory",
            )
        if not resource.ignored:
            continue
        if "filter" not in entry.verbs:
            yield error(
                f"{path}.ignoredByScheduler",
                f"nobody looks whether {resource.name} is enough: the extender it is left to has no filterVerb",
                "set filterVerb, or ignoredByScheduler: false",
            )
        elif entry.ignorable:
            yield warning(
                f"{path}.ignoredByScheduler",
                f"while the extender is down nobody looks whether {resource.name} is enough, because it is ignorable",
                "set ignorable: false or ignoredByScheduler: false",
            )
        else:
            yield note(
                f"{path}.ignoredByScheduler",
                f"only the extender looks whether {resource.name} is enough, "
                "and ignoredResources of NodeResourcesFit do not count",
            )


def _ignorable(entry: Entry) -> Iterator[Finding]:
    if not entry.ignorable:
        return
    if "filter" in entry.verbs:
        yield note(
            f"{entry.path}.ignorable",
            "while the extender is down, or answers with an error, pods are placed without it, against its rules",
        )
    if "bind" in entry.verbs:
        yield warning(
            f"{entry.path}.ignorable",
            "when a bind fails or is late, the default binder binds the pod, and what the extender would have written "
            "with the binding is missing",
            "set ignorable: false for an extender that binds",
        )


def _tls(entry: Entry) -> Iterator[Finding]:
    tls, path = entry.tls, f"{entry.path}.tlsConfig"
    if tls.insecure and tls.has_authority:
        yield error(
            f"{path}.insecure",
            "is set beside a certificate authority: kube-scheduler does not start",
            "remove insecure: true",
        )
    if tls.has_certificate != tls.has_key:
        missing = "keyFile" if tls.has_certificate else "certFile"
        yield warning(f"{path}.{missing}", "is not set: the client certificate is not presented at all", "set both")
    address = entry.address
    if address is None:
        return
    if address.scheme == "http" and (entry.enable_https or tls != type(tls)()):
        yield warning(
            f"{entry.path}.urlPrefix",
            "starts with http://, so calls are not encrypted whatever enableHTTPS and tlsConfig say",
            f"write https://{address.netloc}{address.path}",
        )
    elif address.scheme == "https" and not entry.verifies and not (tls.insecure and tls.has_authority):
        where = f"{path}.insecure" if tls.insecure else f"{entry.path}.enableHTTPS"
        yield warning(
            where,
            "the certificate of the extender is not verified"
            + ("" if tls.insecure else ": without a certificate authority enableHTTPS means exactly that")
            + (", and serverName counts for nothing" if tls.server_name else ""),
            "set tlsConfig.caFile" + (", and remove insecure" if tls.insecure else ""),
        )


_RULES: tuple[Callable[[Entry], Iterator[Finding]], ...] = (
    _address,
    _verbs,
    _weight,
    _timeout,
    _mode,
    _resources,
    _ignorable,
    _tls,
)


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _listed(items: list[str]) -> str:
    return " and ".join(items) if len(items) < 3 else f"{', '.join(items[:-1])} and {items[-1]}"
