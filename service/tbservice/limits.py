"""Limits that clients are told (`WriteResult`) or that several modules share, with their units.

A limit that one module applies is in that module, except those that tests make small for a service.
"""

from __future__ import annotations

from typing import Final

from tbwire import packing

KIB: Final = 1024
MIB: Final = 1024 * KIB

BATCH_BYTES_MAX: Final = 16 * MIB
"""Bytes of one decompressed WriteBatch, and of its compressed form."""

BLOB_INLINE_BYTES_MAX: Final = 256 * KIB
"""Bytes of a blob inside a batch."""

BLOB_BYTES_MAX: Final = 1024 * MIB
"""Bytes of one blob."""

BLOB_PART_BYTES: Final = 8 * MIB
"""Bytes of each part of a large blob except the last.

S3 accepts no other parts under 5 MiB (Amazon S3 User Guide, "multipart upload limits").
"""

BLOB_SEQUENCE_LENGTH_MAX: Final = 1_000
"""Blobs of one step."""

TENSOR_BYTES_MAX: Final = 10 * MIB
"""Bytes of one tensor's data in a batch, and in a row of the database."""

TENSOR_OBJECT_BYTES_MAX: Final = 64 * MIB
"""Bytes of one tensor's data as an object in S3: a response holds all, and copies as text."""

TENSOR_RANK_MAX: Final = 64
"""Dimensions of one tensor."""

METADATA_BYTES_MAX: Final = 4 * MIB
"""Bytes of one serialized SummaryMetadata."""

NAME_CHARS_MAX: Final = 10_000
"""Characters of a run's, a tag's or a hyperparameter's name."""

SESSION_HPARAMS_ITEMS_MAX: Final = 10_000
"""Hyperparameters (items) of one session that are set with a request."""

LOGGED_CONTENT_TYPE_CHARS_MAX: Final = 255
"""Characters of a content type logged with audio.

RFC 6838, section 4.2, allows type and subtype names of 127 characters each, and a slash.
"""

EXPERIMENT_NAME_CHARS_MAX: Final = 200
"""Characters of an experiment's name, and of a token's label."""

EXPERIMENT_DESCRIPTION_CHARS_MAX: Final = 100_000
"""Characters of an experiment's description."""

EXPERIMENT_NOTES_CHARS_MAX: Final = 100_000
"""Characters of the notes of an experiment."""

EXPERIMENT_TAGS_ITEMS_MAX: Final = 50
"""Items (tags for people) of one experiment."""

EXPERIMENT_TAG_CHARS_MAX: Final = 64
"""Characters of such a tag."""

EXPERIMENT_PROPERTIES_ITEMS_MAX: Final = 100
"""Properties (items) of one experiment; also fields of its origin."""

EXPERIMENT_PROPERTY_KEY_CHARS_MAX: Final = 64
"""Characters of the key of a property."""

EXPERIMENT_PROPERTY_VALUE_CHARS_MAX: Final = 2_000
"""Characters of the value of a property."""

UPLOADS_PAGE_ITEMS_MAX: Final = 100
"""Uploads (items) on one page of their listing."""

UPLOAD_PACKAGES_ITEMS_MAX: Final = 1_000
"""Packages (items) of one upload's environment."""

UPLOAD_DETAIL_CHARS_MAX: Final = 200
"""Characters that say how a training ended."""

UPLOAD_TEXT_CHARS_MAX: Final = 16_000
"""Characters of the last lines of a training's console, and of the difference to its git commit."""

UPLOAD_SILENT_SECONDS_MAX: Final = 900
"""Seconds after which an upload that is running, and says nothing, is silent; `tbupload` says
something every 300 s."""

LIST_PAGE_ITEMS: Final = 25
"""Experiments (items) on one page of the list for people."""

DELETED_RUNS_ITEMS_MAX: Final = 100
"""Runs in a request that deletes runs, or allows deleted ones; each is one transaction."""

JSON_BODY_BYTES_MAX: Final = 1 * MIB
"""Bytes of a JSON request body."""

READ_POINTS_MAX: Final = 1_000_000
"""Points in one response: min(downsample, points) summed over the selected series."""

COMPARISON_ITEMS_MAX: Final = 10
"""Items (experiments) of one comparison, each with its own token in the page's cookie."""

SUGGESTION_PARAMETERS_ITEMS_MAX: Final = 100
"""Parameters of a search space: samplers take time in proportion to parameters and trials."""

SUGGESTION_LIST_ITEMS_MAX: Final = 10_000
"""Items of all lists of a search space, or of a search space of architectures."""

RUN_FILES_MAX: Final = 1_000
"""Event files of a run, the first by their starts, that may begin an attempt.

Later restarts keep no superseded points; the newest points are shown as always.
"""

GRAPH_TEXT_BYTES_MAX: Final = 16 * MIB
"""Bytes of a graph or of run metadata to convert to text format, which is about 4 times as long."""

CURSOR_SERIES_ITEMS_MAX: Final = 20_000
"""Series (items) in one change cursor."""

CURSOR_IN_URL_CHARS_MAX: Final = 32_000
"""Characters of a change cursor in a URL, within `HEAD_BYTES_MAX`; longer ones are posted."""

LIVE_POLL_SECONDS: Final = 0.5
"""Seconds between two polls for changes of the experiments that are being followed."""

PAGE_ITEMS_MAX: Final = 1_000
"""Items on one page of a listing; series and streams have limits of their own."""

STREAMS_PAGE_ITEMS_MAX: Final = 10_000
"""Streams on one page."""

REQUEST_BODY_SECONDS_MAX: Final = 120
"""Seconds a client may take to send a request's body."""

BLOCK_POINTS_MAX: Final = packing.BLOCK_POINTS_MAX
"""Points of a scalar block."""

PACKED_POINTS_MAX: Final = BLOCK_POINTS_MAX
"""Points of a packed block in a batch."""

WRITE_BUFFER_ROWS_MAX: Final = 64
"""Rows in the write buffer of a series from which it is compacted."""

WRITE_BUFFER_POINTS_MAX: Final = 32_768
"""Points in the write buffer and in new open blocks of a series from which it is compacted."""

WRITE_BUFFER_ROW_POINTS_MIN: Final = 8
"""Points of a row in the write buffer; fewer remain in the inline buffer of the series."""

PACKED_POINTS_MIN: Final = 1_024
"""Points of a series in one batch from which they are packed; fewer are buffered as raw records."""

SEALED_POINTS_MIN: Final = 2_048
"""Points from which an open block may be sealed in place; smaller ones are repacked."""

DIGEST_PAGE_SECONDS: Final = 10
"""Seconds of work after which a page of digests ends with the series in progress."""

SCAN_CHUNK_POINTS: Final = 262_144
"""Scalar points held at once in a scan of a series; more unsealed points need several passes."""

SCAN_CHUNK_BYTES: Final = 16 * MIB
"""Bytes of tensors or of blob metadata held at once in a scan; at least one point's."""

PACE_WAIT_SECONDS_MAX: Final = 5.0
"""Seconds that a request waits to keep the pace of its caller before it is refused with 429."""

REFUSAL_SECONDS: Final = 5.0
"""Seconds that a refusal with 429 is held, unless its client disconnects before."""

QUEUE_WAIT_SECONDS_MAX: Final = 20.0
"""Seconds that a request is queued before it is refused with 429."""

CALLER_REQUEST_BODIES_BYTES_MAX: Final = 64 * MIB
"""Bytes of incomplete request bodies of one account; a quarter of it per anonymous address."""

QUEUED_DECODING_BYTES_MIN: Final = 1 * MIB
"""Bytes of a decompressed batch from which its decoding is queued; others need little memory."""

CONTENTION_SECONDS: Final = 1.0
"""Seconds for which a caller counts as active after it started work.

Meanwhile, a worker processes one request at a time of each other caller.
"""

CALLER_UNSENT_RESPONSE_BYTES_MAX: Final = 96 * MIB
"""Bytes of unsent responses of one account; a third of it per anonymous address."""

RESPONSE_STALL_SECONDS_MAX: Final = 120
"""Seconds without progress after which the connection of a response is closed."""

REQUEST_HEADER_SECONDS_MAX: Final = 10.0
"""Seconds a client may take to send request headers, from the connection or their first byte on."""

CONNECTIONS_ITEMS_MAX: Final = 4_096
"""Connections (items) that a worker has open; fewer if the limit of open files is lower."""

MIGRATE_LOCK_SECONDS_MAX: Final = 3.0
"""Seconds a migration waits for a table lock; all later statements on the table wait behind it."""

TOKEN_SWEEP_ITEMS_MAX: Final = 10
"""Ended tokens deleted at a time, whenever a new one is created."""

ENDED_TOKEN_SECONDS_MAX: Final = 90 * 24 * 3600
"""Seconds after which an expired or revoked token is deleted; it is listed until then."""

PERSON_SESSION_SECONDS_MAX: Final = 30 * 24 * 3600
"""Seconds after its sign-in from which a browser session is not valid."""

PERSON_SESSION_IDLE_SECONDS_MAX: Final = 14 * 24 * 3600
"""Seconds after its last use from which a browser session is not valid."""

SIGN_IN_SWEEP_ITEMS_MAX: Final = 10
"""Expired rows (items) of a table deleted at a time, whenever a sign-in adds one."""

SIGN_IN_LINK_LOCAL_SECONDS: Final = 15 * 60
"""Seconds for which a sign-in link is valid that `tbservice up` prints, or a person makes."""

EXPIRY_DAYS_MAX: Final = 36_500
"""Days of 86,400 seconds after which what may expire expires at the latest, unless it never does:
experiments, tokens and share links. A later end is a typing error.
"""

INVITATION_SECONDS_MAX: Final = 30 * 24 * 3600
"""Seconds for which an invitation can be valid."""

EMAIL_CHARS_MAX: Final = 254
"""Characters of an e-mail address (RFC 5321, 4.5.3.1.3, less the angle brackets)."""

PERSON_NAME_CHARS_MAX: Final = 200
"""Characters of a person's name; a longer one of a provider is cut."""

LOG_MESSAGE_CHARS_MAX: Final = 2_000
"""Characters of a log record's message, escaped; the middle of a longer one is left out."""

LOG_TRACEBACK_CHARS_MAX: Final = 16_000
"""Characters of a log record's traceback; the middle of a longer one is left out."""

COMPACTION_STOP_SECONDS_MAX: Final = 3.0
"""Seconds that a stopping process continues to compact queued runs."""

HPARAMS_COLUMN_ITEMS_MAX: Final = 10_000
"""Columns (items of `col_params`) in one request for session groups."""

HPARAMS_RESPONSE_ITEMS_MAX: Final = 1_000_000
"""Values in one response of session groups: hyperparameters, and metrics of groups and sessions."""

GRPC_MESSAGE_BYTES_MAX: Final = 16 * MIB
"""Bytes of one message that a gRPC client sends: about 200,000 metric logs of Katib."""

GRPC_CONNECTIONS_ITEMS_MAX: Final = 4_096
"""Connections (items) that the gRPC port of a worker accepts at once."""

KATIB_READ_LOGS_MAX: Final = 1_000_000
"""Logs (points) in one GetObservationLog, which sends its response in one message.

Also those that one rule of early stopping counts, of all trials.
"""

KATIB_READ_BYTES_MAX: Final = 64 * MIB
"""Bytes of values in one GetObservationLog."""

DEVICE_LOGIN_SECONDS_MAX: Final = 15 * 60
"""Seconds a login of a command waits for a person's approval."""

DEVICE_CLIENT_CHARS_MAX: Final = 200
"""Characters in which a command describes itself to the person who approves its login."""

SIGN_IN_SECONDS_MAX: Final = 15 * 60
"""Seconds a person may take at an OpenID provider to sign in."""

NODE_CONNECT_SECONDS_MAX: Final = 3
"""Seconds that a node of a cluster may take to connect, and to acknowledge what was sent."""

NUMBERING_LOCK_SECONDS_MAX: Final = 1
"""Seconds to wait for the numbers of new runs, tags or series beside a batch, in a cluster."""

METRICS_FILE_BYTES: Final = MIB
"""Size of each file with metrics of one of several workers: 200 routes, each with a histogram."""
