"""The server: stores uploads in PostgreSQL and S3; serves samples, blobs and TensorBoard's page."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - one wheel has the client too, which runs on older ones
    raise SystemExit("tbservice needs Python 3.11 or newer; only tbupload runs on older ones")
