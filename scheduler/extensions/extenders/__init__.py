"""HTTP extenders: web services that kube-scheduler and this scheduler call within a scheduling cycle.

`wire` has the messages, `http_extender` one service with its settings, `chain` all of them in order; `serving` is the
server's side of the messages.
"""
