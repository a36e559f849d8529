"""Who asks, and whether they may: tokens, impersonation, RBAC, reviews, and what keeps account of grants."""
