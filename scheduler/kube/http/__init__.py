"""An HTTP/1.1 client on the llhttp parser, for the API server and all other servers."""
