"""What real objects carry besides what scheduling reads, so that they have the size they have in a cluster.

Keys stand in the order in which Go writes them.
"""

from __future__ import annotations

import json
from hashlib import sha256

from benchmarks.cluster import Json

_TIME = "2026-01-01T00:00:00Z"
_CREATED = "2025-06-01T12:00:00Z"


def encode(item: Json) -> bytes:
    """Return an object as JSON, as compact as Go writes it."""
    return json.dumps(item, separators=(",", ":")).encode()


def without_kind(item: Json) -> Json:
    """Return an object as it stands in lists and in requests of kube-scheduler."""
    return {key: value for key, value in item.items() if key not in ("apiVersion", "kind")}


def detailed_node(node: Json) -> Json:
    """Return a node of 8 to 12 KB."""
    meta, status = node["metadata"], node["status"]
    name, uid = meta["name"], meta["uid"]
    capacity = {**status["capacity"], "hugepages-1Gi": "0", "hugepages-2Mi": "0"}
    return {
        "apiVersion": node["apiVersion"],
        "kind": node["kind"],
        "metadata": {
            "name": name,
            "uid": uid,
            "resourceVersion": meta["resourceVersion"],
            "creationTimestamp": _CREATED,
            "labels": {"beta.kubernetes.io/arch": "amd64", "kubernetes.io/arch": "amd64", **meta["labels"]},
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": f'{{"ebs.csi.example":"i-{uid[:13]}"}}',
                "node.alpha.kubernetes.io/ttl": "15",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "managedFields": [
                _managed("kubelet", ["capacity", "allocatable", "conditions", "images", "nodeInfo"], 14),
                _managed("kube-controller-manager", ["podCIDR", "podCIDRs", "taints"], 4),
            ],
        },
        "spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": f"aws:///{name}", **node["spec"]},
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": [
                _node_condition(kind) for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Network", "Ready")
            ],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": uid.replace("-", ""),
                "systemUUID": uid,
                "bootID": uid,
                "kernelVersion": "6.1.0-generic",
                "osImage": "Example Linux 2025.1 (Stable)",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.2",
                "kubeProxyVersion": "v1.36.2",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": [
                {"names": [_digest_name(image["names"][0]), *image["names"]], "sizeBytes": image["sizeBytes"]}
                for image in status["images"]
            ],
        },
    }


def detailed_pod(pod: Json) -> Json:
    """Return a pod of 5 to 7 KB, or one of 4 KB where it is not running yet."""
    meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
    running = status["phase"] == "Running"
    owner = meta["name"].rpartition("-")[0]
    return {
        "apiVersion": pod["apiVersion"],
        "kind": pod["kind"],
        "metadata": {
            "name": meta["name"],
            "generateName": f"{owner}-",
            **{key: meta[key] for key in ("namespace", "uid", "resourceVersion")},
            "generation": 1,
            "creationTimestamp": _TIME,
            "labels": meta["labels"],
            "annotations": {"kubectl.kubernetes.io/restartedAt": _CREATED, "prometheus.io/scrape": "true"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner,
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                _managed("kube-controller-manager", ["containers", "env", "resources", "volumeMounts"], 16),
                *([_managed("kubelet", ["conditions", "containerStatuses", "podIP", "startTime"], 8)] * running),
            ],
        },
        "spec": {
            "volumes": [{"name": "token", "projected": {"sources": _TOKEN_SOURCES, "defaultMode": 420}}],
            **spec,
            "containers": [container | _CONTAINER for container in spec["containers"]],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "serviceAccount": "default",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": _TOLERATIONS,
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {**status, **_running_status(spec["containers"][0]["image"])} if running else status,
    }


_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]

_TOKEN_SOURCES = [
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata"}}]}},
]

_CONTAINER = {
    "args": ["--config=/etc/app/config.yaml", "--listen=:8080", "--log-format=json"],
    "env": [{"name": f"SETTING_{place:02d}", "value": f"value-of-setting-{place:02d}"} for place in range(16)],
    "livenessProbe": {
        "httpGet": {"path": "/livez", "port": 8080, "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    },
    "volumeMounts": [{"name": "token", "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}


def _running_status(image: str) -> Json:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    digest = sha256(image.encode()).hexdigest()
    return {
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _TIME} for kind in kinds
        ],
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": "10.1.0.7",
        "podIPs": [{"ip": "10.1.0.7"}],
        "startTime": _TIME,
        "containerStatuses": [
            {
                "name": "c",
                "state": {"running": {"startedAt": _TIME}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": image,
                "imageID": _digest_name(image),
                "containerID": f"containerd://{digest}",
                "started": True,
            }
        ],
        "qosClass": "Burstable",
    }


def _node_condition(kind: str) -> Json:
    return {
        "type": kind,
        "status": "True" if kind == "Ready" else "False",
        "lastHeartbeatTime": _TIME,
        "lastTransitionTime": _CREATED,
        "reason": f"Kubelet{kind}",
        "message": f"the kubelet reports on {kind}",
    }


def _managed(manager: str, fields: list[str], depth: int) -> Json:
    """Return one entry of ``managedFields``; it grows with ``depth``."""
    keys: Json = {
        f'k:{{"type":"{place:02d}"}}': {".": {}, "f:lastTransitionTime": {}, "f:status": {}} for place in range(depth)
    }
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _TIME,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:annotations": {".": {}}},
            "f:spec": {f"f:{name}": dict(keys) for name in fields[:1]},
        }
        | {f"f:{name}": {".": {}} for name in fields},
    }


def _digest_name(image: str) -> str:
    return f"{image.rpartition(':')[0]}@sha256:{sha256(image.encode()).hexdigest()}"
