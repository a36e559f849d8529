"""Whether what the daemon knows is what there is: it is compared with the API server and with what it is made of."""
