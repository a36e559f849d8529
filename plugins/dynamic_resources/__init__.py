"""DynamicResources: `plugin` is the plugin; `structured` finds devices, `cel` judges them."""
