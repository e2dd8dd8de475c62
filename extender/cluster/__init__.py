"""Everything that talks to the API server: connection, client, reflectors, and the server used without a cluster.

A ``Connection`` says where the API server is and how to authenticate; a ``Client`` sends requests over it; a
``Reflector`` lists and watches one kind through the client and feeds what it learns to a ``Store``; a
``LeaderElection`` holds a lease for one replica of several; an ``EventBroadcaster`` writes events about pods. No other
package opens a connection to Kubernetes, and none of the exceptions of the HTTP library leave this one.
"""
