"""Authentication and authorization: tokens, impersonation, RBAC, reviews, and the record of used grants."""
