"""A small, honest Kubernetes API server for one process: ``serve --cluster``, tests and plug-in authors use it.

::

    manifest  ->  storage  <-  verb, binding, patch   <-  call  <-  server  <-  HTTP
                  table    ->  listing, watch         ->  answer, stream  ->

A cluster file becomes objects (``manifest``); ``storage`` keeps each as encoded bytes (``entry``) in one ``table`` a
resource, under one increasing resource version, with the defaults of the real server (``default``). ``server`` takes
requests apart (``call``), lets ``fault`` spoil them, and has them answered by ``verb``, ``listing``, ``discovery`` or
``watch``. What is served is a table of one line a resource (``resource``).

Bodies are JSON only: clients that prefer protobuf, kube-scheduler among them, have to be told
``contentType: application/json``. Answers are neither compressed nor made into tables. ``verb`` says where deletion
and namespaces differ from the real server.

    server = ApiServer(load_objects("cluster.yaml"))
    await server.start()
    server.storage.create("pods", {"metadata": {"name": "web-0"}, "spec": {...}})
    server.faults.add(Fault(method="POST", path="/binding$", status=429, headers={"Retry-After": "1"}))
    await server.stop()
"""

from extender.cluster.apiserver.fault import Fault, FaultList, Interruption
from extender.cluster.apiserver.manifest import load_objects
from extender.cluster.apiserver.option import ServerOptions
from extender.cluster.apiserver.resource import Catalogue, Resource
from extender.cluster.apiserver.server import ApiServer, LoggedRequest
from extender.cluster.apiserver.status import StatusError
from extender.cluster.apiserver.storage import Storage

__all__ = [
    "ApiServer",
    "Catalogue",
    "Fault",
    "FaultList",
    "Interruption",
    "LoggedRequest",
    "Resource",
    "ServerOptions",
    "StatusError",
    "Storage",
    "load_objects",
]
