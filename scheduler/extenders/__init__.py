"""HTTP extenders: web services that kube-scheduler, and so we, ask in the middle of a scheduling cycle.

`wire` is what is said, `http_extender` one service with its settings, `chain` all of them in order; `serving` is the
other end of the wire.
"""
