"""DefaultPreemption: which pods would have to leave so that another fits, and which of the choices is best."""
