"""A minimal HTTP/1.1 client for one server, on the llhttp parser."""
