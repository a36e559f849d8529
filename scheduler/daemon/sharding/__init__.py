"""The shares of several active replicas in the API server: their Leases, and the object with the assignment."""
