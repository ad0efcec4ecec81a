"""Every limit the server keeps to, with its unit. A client learns the ones it must keep to from each `WriteResult`."""

from __future__ import annotations

from typing import Final

from tbwire import packing

KIB: Final = 1024
MIB: Final = 1024 * KIB

BATCH_BYTES_MAX: Final = 16 * MIB
"""Bytes of one decompressed WriteBatch, and of its compressed form."""

BATCH_SEGMENTS_MAX: Final = 10_000
"""Segments in one WriteBatch."""

BATCH_FIELDS_MAX: Final = 500_000
"""Fields in one WriteBatch, of its segments and series; each of their tensors, blob sequences and blobs is one, too."""

BATCH_ELEMENTS_MAX: Final = 2_000_000
"""Packed blocks and dimensions of tensors in one WriteBatch, with the other fields that stand beside them."""

BLOB_INLINE_BYTES_MAX: Final = 256 * KIB
"""Bytes of a blob that may travel inside a batch."""

BLOB_BYTES_MAX: Final = 1024 * MIB
"""Bytes of one blob."""

BLOB_PART_BYTES: Final = 8 * MIB
"""Bytes of each piece of a large blob, but for its last; S3 takes no parts under 5 MiB."""

BLOB_PART_SECONDS_MAX: Final = 900
"""Seconds a client may take to send one piece of a blob."""

BLOB_UNFINISHED_SECONDS_MAX: Final = 7 * 24 * 3600
"""Seconds after which the pieces of a blob that nobody went on sending are deleted."""

BLOB_SWEEP_ITEMS_MAX: Final = 10
"""Unfinished blobs that are deleted at a time, whenever another one is begun."""

BLOB_SEQUENCE_LENGTH_MAX: Final = 1_000
"""Blobs of one step."""

TENSOR_BYTES_MAX: Final = 10 * MIB
"""Bytes of one tensor's data in a batch, and in a row of the database."""

TENSOR_OBJECT_BYTES_MAX: Final = 64 * MIB
"""Bytes of one tensor's data that is an object in S3: a reader's answer holds it at once, and several times as text."""

BATCH_TENSOR_OBJECTS_MAX: Final = 2_000
"""Tensors in one WriteBatch whose bytes are objects in S3."""

BATCH_TENSOR_TABLES_BYTES_MAX: Final = 64 * MIB
"""Bytes of the tables of lengths of all string tensors in one WriteBatch that are objects: these are read."""

TENSOR_RANK_MAX: Final = 64
"""Dimensions of one tensor."""

METADATA_BYTES_MAX: Final = 4 * MIB
"""Bytes of one serialized SummaryMetadata."""

NAME_CHARS_MAX: Final = 10_000
"""Characters of a run's or a tag's name."""

LOGGED_CONTENT_TYPE_CHARS_MAX: Final = 255
"""Characters of a content type that was logged with audio: two names of 127 and a slash, as RFC 6838 allows."""

FILE_NAME_CHARS_MAX: Final = 1_000
"""Characters of an event file's name."""

EXPERIMENT_NAME_CHARS_MAX: Final = 200
"""Characters of an experiment's name, and of a token's label."""

EXPERIMENT_DESCRIPTION_CHARS_MAX: Final = 100_000
"""Characters of an experiment's description."""

JSON_BODY_BYTES_MAX: Final = 1 * MIB
"""Bytes of a JSON request body."""

READ_POINTS_MAX: Final = 1_000_000
"""Points in one answer: min(downsample, points) summed over the selected series."""

READ_BLOBS_MAX: Final = 1_000_000
"""Blobs that are named in one answer, of all points of all series; `sampling=all` names more."""

READ_BYTES_MAX: Final = 256 * MIB
"""Bytes of tensors in one answer, or of logged content types."""

COMPARISON_ITEMS_MAX: Final = 10
"""Items of one comparison: the experiments on one page, each with a token of its own in the page's cookie."""

COMPARISON_NAME_CHARS_MAX: Final = 100
"""Characters of the name that a comparison's address gives to an experiment."""

TIME_SERIES_CARDS_ITEMS_MAX: Final = 10
"""Items of one request of the Time Series dashboard, which asks for one: the series of a card."""

SCAN_POINTS_MAX: Final = 100_000_000
"""Scalar points that are read for one answer, however few of them it keeps."""

GRAPH_TEXT_BYTES_MAX: Final = 16 * MIB
"""Bytes of a graph or of run metadata that are written out as text, which is some 4 times as long."""

MARKDOWN_CHARS_MAX: Final = 64 * KIB
"""Characters of a text or a description that are shown as Markdown; longer ones are shown as plain text."""

MARKDOWN_SECONDS_MAX: Final = 1.0
"""Seconds that one text may take to become HTML; one that takes longer is shown as plain text."""

MARKDOWN_TOTAL_SECONDS_MAX: Final = 5.0
"""Seconds that all texts of one answer may take; those after that are shown as plain text."""

HANDLER_ITEMS_MAX: Final = 4
"""Items of work (requests) that TensorBoard's handlers are at in one worker, each in a process of its own."""

HANDLER_SHARE_ITEMS_MAX: Final = 2
"""Items of these that may be of one workspace's data; comparisons of several workspaces are one workspace together."""

HANDLER_SECONDS_MAX: Final = 30
"""Seconds that a handler process has for one request, after which it is killed."""

HANDLER_MEMORY_BYTES_MAX: Final = 512 * MIB
"""Bytes of memory that a handler process may take beside those it begins with."""

CURSOR_SERIES_ITEMS_MAX: Final = 20_000
"""Series, that is items of one cursor, that a reader of what is new may follow at once."""

CURSOR_CHARS_MAX: Final = 700_000
"""Characters of a reader's cursor."""

CURSOR_IN_URL_CHARS_MAX: Final = 32_000
"""Characters of a cursor in a URL, which `HEAD_BYTES_MAX` bounds: longer ones are posted."""

CHANGES_POINTS_MAX: Final = 100_000
"""Points in one answer of those that are new; there is a next one when there are more."""

CHANGES_BYTES_MAX: Final = 8 * MIB
"""Bytes of tensors in one answer of points that are new, unless a single one has more."""

LIVE_EVENT_POINTS_MAX: Final = 10_000
"""Points in one event of a live tail: that much is held for each reader that is slow."""

LIVE_STREAMS_MAX: Final = 200
"""Live tails (streams of events) that one worker serves at once."""

LIVE_POLL_SECONDS: Final = 1.0
"""Seconds between two looks whether the experiments that somebody follows have changed."""

LIVE_GRANT_SECONDS: Final = 10.0
"""Seconds after which is looked again whether a live tail's reader may still read."""

LIVE_KEEPALIVE_SECONDS: Final = 15.0
"""Seconds without anything new after which a live tail sends a comment, so that nobody takes it for dead."""

PAGE_ITEMS_MAX: Final = 1_000
"""Items on one page of a listing; `SERIES_PAGE_ITEMS_MAX` for series, `STREAMS_PAGE_ITEMS_MAX` for streams."""

SERIES_PAGE_ITEMS_MAX: Final = 10_000
"""Series on one page of their metadata."""

STREAMS_PAGE_ITEMS_MAX: Final = 10_000
"""Streams on one page."""

REQUEST_BODY_SECONDS_MAX: Final = 120
"""Seconds a client may take to send a request's body."""

BLOB_SECONDS_MAX: Final = 3_600
"""Seconds a client may take to send one large blob."""

BLOCK_POINTS_MAX: Final = packing.BLOCK_POINTS_MAX
"""Points of a sealed scalar block, at most."""

PACKED_POINTS_MAX: Final = BLOCK_POINTS_MAX
"""Points of a packed block that an uploader sends."""

WRITE_BUFFER_ROWS_MAX: Final = 64
"""Tail rows of a series that make it due for a merge."""

WRITE_BUFFER_POINTS_MAX: Final = 32_768
"""Points of a series, in its tail or in blocks that came in large, that make it due for a merge."""

WRITE_BUFFER_ROW_POINTS_MIN: Final = 8
"""Points of a series that become a row of its tail; fewer wait for the next in the series' own row."""

PACKED_POINTS_MIN: Final = 1_024
"""Points of a series in one batch from which they are packed as they come in; fewer stay raw records in its tail."""

SEALED_POINTS_MIN: Final = 2_048
"""Points from which a block may be sealed as it came in; smaller ones are packed together first."""

DIGEST_PAGE_SECONDS: Final = 10
"""Seconds of work after which a page of digests ends with the series under way; the next page goes on."""

OBJECT_CHECKS_PAGE_ITEMS_MAX: Final = 10_000
"""Objects on one page of a check that they are in the object store; `DIGEST_PAGE_SECONDS` ends it earlier."""

OBJECT_FAULTS_PAGE_ITEMS_MAX: Final = 1_000
"""Faulty objects after which a page of a check of objects ends; up to 1,000 more that were checked with them."""

SCAN_CHUNK_POINTS: Final = 262_144
"""Scalar points held at once while a series is read in pieces; of those not sealed yet, more take several looks."""

SCAN_CHUNK_BYTES: Final = 16 * MIB
"""Bytes of tensors, or of what is known of blobs, held at once while series are read in pieces; but one, at least."""

FULL_SCAN_STREAMS_MAX: Final = 8
"""Streams at full resolution, or of samples over `SCAN_CHUNK_BYTES`, that a worker sends at once; others come again."""

DIGEST_POINTS_PAGE_ITEMS_MAX: Final = 100_000
"""Points on one page of a series' digest records."""

RESERVED_CONNECTIONS_ITEMS: Final = 2
"""Database connections (items) of a worker's pool that no request under work takes: for look-ups and compaction."""

CALLER_REQUESTS_ITEMS_MAX: Final = 2
"""Requests (items) of one workspace that a worker works on at once; an address without a token has half of it."""

CALLER_QUEUED_REQUESTS_ITEMS_MAX: Final = 200
"""Requests (items) of one caller that wait for a turn in one worker; one more is refused with 429."""

QUEUE_WAIT_SECONDS_MAX: Final = 20.0
"""Seconds that a request waits for its turn before it is refused with 429."""

REQUEST_BODIES_BYTES_MAX: Final = 128 * MIB
"""Bytes of request bodies on their way that one worker holds at once."""

CALLER_REQUEST_BODIES_BYTES_MAX: Final = 64 * MIB
"""The same bytes of one workspace's requests; an address without a token has a quarter of it."""

DECODING_BYTES_MAX: Final = 32 * MIB
"""Bytes of decompressed batches that one worker decodes at once: of one caller, one batch of the largest size."""

QUEUED_DECODING_BYTES_MIN: Final = 1 * MIB
"""Bytes of a decompressed batch from which it waits for its turn to be decoded; smaller ones take little memory."""

CONTENTION_SECONDS: Final = 1.0
"""Seconds for which a caller counts as at work after it began to: as long, others get one turn at a time."""

CALLER_BODY_BYTES_PER_SECOND: Final = 32 * MIB
"""Bytes of request bodies a second that a worker takes from one workspace while others work; half from an address."""

UNSENT_RESPONSE_BYTES_MAX: Final = 256 * MIB
"""Bytes of answers that clients have not taken yet, at once in one worker; more answers are refused with 429."""

CALLER_UNSENT_RESPONSE_BYTES_MAX: Final = 96 * MIB
"""The same bytes of one workspace's answers; an address without a token has a third of it."""

RESPONSE_CHUNK_BYTES: Final = 256 * KIB
"""Bytes of an answer that are given to the connection at once."""

RESPONSE_STALL_SECONDS_MAX: Final = 120
"""Seconds in which a client that takes nothing of its answer is cut off."""

CALLER_FULL_SCAN_STREAMS_MAX: Final = 4
"""Streams at full resolution that a worker sends to one workspace at once; an address without a token has one."""

CALLER_LIVE_STREAMS_MAX: Final = 100
"""Live tails (streams) of one workspace in one worker; an address without a token has a quarter of it."""

SMALL_BODY_BYTES_MAX: Final = 16 * KIB
"""Bytes of a body that takes no share of memory, and is read before rights are checked: 64 MiB on all connections."""

CALLER_CACHE_SECONDS: Final = 60.0
"""Seconds for which a worker remembers which workspace's share a token's requests count towards."""

CALLER_CACHE_TOKENS_MAX: Final = 10_000
"""Tokens of which a worker remembers that."""

HEAD_BYTES_MAX: Final = 48 * KIB
"""Bytes of a request's first line and headers."""

REQUEST_HEADER_SECONDS_MAX: Final = 10.0
"""Seconds that a client may take to send a request's headers after it has begun to, or has connected."""

CONNECTIONS_ITEMS_MAX: Final = 4_096
"""Connections (items) that a worker holds open at once; fewer where the system allows fewer files to be open."""

MIGRATE_LOCK_SECONDS_MAX: Final = 3.0
"""Seconds a migration waits for a table's lock; for as long, every statement on that table waits behind it."""

MIGRATE_PAUSE_SECONDS: Final = 5.0
"""Seconds between two attempts of a migration that did not get a lock."""

MIGRATE_ATTEMPTS_MAX: Final = 100
"""Attempts of a migration to get its locks, some 13 minutes with the seconds of the two limits above."""

READY_CACHE_SECONDS: Final = 2.0
"""Seconds for which a good answer of /readyz is repeated: a balancer asks often, and each look writes 1 MiB."""
TOKEN_SWEEP_ITEMS_MAX: Final = 10
"""Tokens that have ended and are deleted at a time, whenever another one is made."""

ENDED_TOKEN_SECONDS_MAX: Final = 90 * 24 * 3600
"""Seconds after which a token that expired or was revoked is deleted; until then it is listed."""

LOG_MESSAGE_CHARS_MAX: Final = 2_000
"""Characters of a log record's message, once escaped; its middle is left out."""

LOG_TRACEBACK_CHARS_MAX: Final = 16_000
"""Characters of a log record's traceback; its middle is left out."""

LOG_REPEATS_MAX: Final = 20
"""Records of one origin (a line of code, or all of a traceback) in `LOG_WINDOW_SECONDS`; others are only counted."""

LOG_WINDOW_SECONDS: Final = 60.0
"""Seconds after which the suppressed log records of an origin are counted in one line, and others written again."""

COMPACTION_STOP_SECONDS_MAX: Final = 3.0
"""Seconds that a stopping process goes on merging what is queued; a service that starts later finds the rest."""

COMPACTION_SEARCH_SECONDS: Final = 7 * 24 * 3600
"""Seconds since an experiment was written to, up to which a service that starts looks for what is unmerged in it."""
