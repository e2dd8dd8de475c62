"""What the service does when kube-scheduler calls: one module a verb, request bytes to reply bytes."""
