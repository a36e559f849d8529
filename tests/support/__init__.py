"""What tests share."""

import sys

# jsonschema, which kopf imports where kubernetes_validate is installed, would build 38 parsers for a second: of formats of
# addresses that no schema of Kubernetes has.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
