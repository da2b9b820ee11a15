"""The load generator: sockets, HTTP/1.1, SSE, and what one stream means."""
