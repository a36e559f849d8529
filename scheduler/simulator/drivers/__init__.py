"""Stand-ins for drivers of storage and devices, which are no part of Kubernetes itself."""
