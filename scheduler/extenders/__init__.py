"""HTTP extenders: web services that kube-scheduler, and so we, ask in the middle of a scheduling cycle.

`wire` is what is said, `transport` how it gets there, `http_extender` one service with its settings, `chain` all
of them in order.
"""
