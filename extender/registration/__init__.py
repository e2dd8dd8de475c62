"""What kube-scheduler is told of an extender: the documents that register one, read, judged and written.

::

    dialect     the API versions a document may have: releases, spellings, default weights
    duration    texts such as 5s, as Go reads and writes them
    source      a file to a document
    entry       one extender of a document, its values typed
    decoding    a document to entries, with every mistake kube-scheduler's own decoder refuses or overlooks
    rule        what is wrong with entries that could be decoded
    finding     a mistake: how bad, where, what, and the remedy

    request     what ``register`` was asked for, and why it cannot be had
    document    a request to a document and its comments      kubeadm   to a patch of kube-scheduler's static pod
    commented   both to YAML
"""
