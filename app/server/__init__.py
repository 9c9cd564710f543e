"""The HTTP server: OpenAI's API over documents and their cached KV, and all that a chat over documents needs beside it.

`web.create_app` puts it together over a `Service`, which holds the pipeline. A file per kind of resource has its
routes; whoever asks is a `Caller`, and no route looks at anything without one.
"""
