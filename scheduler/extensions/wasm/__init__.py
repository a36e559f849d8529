"""WebAssembly guests as plugins: the host side of kube-scheduler-wasm-extension's ABI, on wasmtime.

wasmtime is an optional extra; it is imported only when a profile names a guest.
"""
