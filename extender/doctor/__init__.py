"""Finds what is wrong between kube-scheduler and its extenders: file, connections, replies, and the cluster around.

::

    examination   all checks of one run         report    their findings as text and as JSON
    visit         the checks of one extender    target    where its calls go
      reach         names, ports, certificates      tls      as kube-scheduler would verify them
      call          one request, sent as kube-scheduler sends it
      verdict       what kube-scheduler makes of the reply
      idle          whether an idle connection stays open
    api           what the API server tells     greeting  its version and clock
      right         what the service may do         managed_resource    who offers and who names them
      own_pod       whether the extender places itself
      scheduler_pod the flags, mounts and variables of kube-scheduler
      sampling, proxy   what kube-scheduler and Go do by themselves

Nothing is ever bound, and no object is changed; calls name nodes that exist where the API server can be asked.
"""
