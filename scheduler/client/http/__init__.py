"""HTTP/1.1 to one server: what an API server needs of it, at the price of two writes and a parser."""
