"""An S3 server on loopback, in its own process."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
"""What the environment of those who use it must hold; the server does not look at it."""


@contextmanager
def s3_server():
    """Its address; it has an empty bucket named `vpac`, and ends with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        make_bucket(server, f"http://127.0.0.1:{port}/vpac")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def make_bucket(server, url):
    for _ in range(600):
        assert server.poll() is None, "the server has ended"
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise TimeoutError(url)
