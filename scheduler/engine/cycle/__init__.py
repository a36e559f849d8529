"""The scheduling cycle decides about pods, the binding cycle binds them, and event handlers update their data."""
