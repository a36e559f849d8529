"""The plugins that come with the scheduler: one file each; `registry` lists them."""
