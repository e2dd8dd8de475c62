"""Storage objects as they stand in the API, for the tests of all algorithms that reckon with volumes."""

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def storage_class(name, provisioner="csi.example.com", mode="WaitForFirstConsumer", **fields):
    return (
        {"kind": "StorageClass", "metadata": {"name": name}, "provisioner": provisioner}
        | ({"volumeBindingMode": mode} if mode else {})
        | fields
    )


def claim(name, class_name="wait", volume=None, *, size="1Gi", bound=None, owner=None, phase="Pending", **spec):
    """A claim in the default namespace; with a ``volume`` it is bound to it, unless ``bound`` says otherwise."""
    complete = bool(volume) if bound is None else bound
    meta = {"name": name, "namespace": spec.pop("namespace", "default"), "uid": f"uid-{name}"}
    meta["annotations"] = spec.pop("annotations", {}) | ({"pv.kubernetes.io/bind-completed": "yes"} if complete else {})
    if owner:
        meta["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": owner, "controller": True}]
    if spec.pop("deleting", False):
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    asked = {"resources": {"requests": {"storage": size}}} if size else {}
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": {"accessModes": ["ReadWriteOnce"], **asked}
        | ({"storageClassName": class_name} if class_name else {})
        | ({"volumeName": volume} if volume else {})
        | spec,
        "status": {"phase": phase},
    }


def volume(name, class_name="wait", *, size="1Gi", on=None, ref=None, phase=None, labels=None, source=None, **spec):
    """A persistent volume of a CSI driver; ``on`` has label values by key that nodes must have to reach it."""
    meta = {"name": name, "labels": labels or {}}
    if spec.pop("deleting", False):
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    affinity = {"nodeAffinity": {"required": node_selector(on)}} if on else {}
    kept = {"claimRef": {"namespace": "default", "name": ref}} if isinstance(ref, str) else {"claimRef": ref}
    return {
        "kind": "PersistentVolume",
        "metadata": meta,
        "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": class_name}
        | (source or csi("csi.example.com", f"handle-{name}"))
        | affinity
        | (kept if ref else {})
        | spec,
        "status": {"phase": phase or ("Bound" if ref else "Available")},
    }


def node_selector(labels):
    expressions = [{"key": key, "operator": "In", "values": list(values)} for key, values in labels.items()]
    return {"nodeSelectorTerms": [{"matchExpressions": expressions}]}


def csi(driver, handle):
    return {"csi": {"driver": driver, "volumeHandle": handle}}


def csi_node(name, limits=None, migrated=()):
    """What a node says: limits by driver, None where it has the driver without a limit."""
    drivers = [
        {"name": driver, "nodeID": name} | ({} if limit is None else {"allocatable": {"count": limit}})
        for driver, limit in (limits or {}).items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)} if migrated else {}
    return {"kind": "CSINode", "metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}}


def csi_driver(name="csi.example.com", *, storage_capacity=True):
    return {"kind": "CSIDriver", "metadata": {"name": name}, "spec": {"storageCapacity": storage_capacity}}


def capacity(name, size, topology, class_name="wait", **fields):
    return (
        {
            "kind": "CSIStorageCapacity",
            "metadata": {"name": name, "namespace": "kube-system"},
            "storageClassName": class_name,
            "nodeTopology": {"matchLabels": topology} if topology is not None else None,
        }
        | ({"capacity": size} if size else {})
        | fields
    )


def attachment(name, node, volume, driver="csi.example.com"):
    return {
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}},
    }


def ephemeral(name="scratch"):
    return {"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}
