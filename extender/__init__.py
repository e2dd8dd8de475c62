"""kube-scheduler-extender."""
