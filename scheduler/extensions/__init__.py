"""Extensions that are not Python plugins: HTTP extenders and WebAssembly guests."""
