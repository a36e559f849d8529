"""DynamicResources: `plugin` is the plugin; `structured` allocates devices; `cel` evaluates device selectors."""
