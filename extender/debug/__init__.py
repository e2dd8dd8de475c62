"""What is served below ``/debug`` to find out why the service does what it does, or takes its time over it.

Nothing here is secret, and nothing changes the service: profiles, stacks, memory, dumps of the caches, a comparison of
the caches with the API server, and the configuration. What belongs to the event loop of the verbs is read there,
between two requests; everything else is done by the thread of the management port.
"""

from extender.debug.page import Answer, DebugPages

__all__ = ["Answer", "DebugPages"]
