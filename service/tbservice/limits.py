"""Every limit of the server, with its unit. `WriteResult` sends clients those that concern them.

One long list, so that all of them are found in one place.
"""

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
"""Fields in one WriteBatch: those of segments and series, and each tensor, sequence and blob."""

BATCH_ELEMENTS_MAX: Final = 2_000_000
"""Packed blocks and tensor dimensions in one WriteBatch, and the fields beside them."""

BLOB_INLINE_BYTES_MAX: Final = 256 * KIB
"""Bytes of a blob inside a batch."""

BLOB_BYTES_MAX: Final = 1024 * MIB
"""Bytes of one blob."""

BLOB_PART_BYTES: Final = 8 * MIB
"""Bytes of each part of a large blob except the last.

S3 accepts no other parts under 5 MiB (Amazon S3 User Guide, "multipart upload limits").
"""

BLOB_PART_SECONDS_MAX: Final = 900
"""Seconds a client may take to send one part of a blob."""

BLOB_UNFINISHED_SECONDS_MAX: Final = 7 * 24 * 3600
"""Seconds after its last part from which an unfinished blob upload is deleted."""

BLOB_SWEEP_ITEMS_MAX: Final = 10
"""Unfinished blob uploads deleted at a time, whenever a new one begins."""

BLOB_SEQUENCE_LENGTH_MAX: Final = 1_000
"""Blobs of one step."""

TENSOR_BYTES_MAX: Final = 10 * MIB
"""Bytes of one tensor's data in a batch, and in a row of the database."""

TENSOR_OBJECT_BYTES_MAX: Final = 64 * MIB
"""Bytes of one tensor's data as an object in S3: a response holds all, and copies as text."""

BATCH_TENSOR_OBJECTS_MAX: Final = 2_000
"""Tensors in one WriteBatch with their bytes in S3."""

BATCH_TENSOR_TABLES_BYTES_MAX: Final = 64 * MIB
"""Bytes of length tables read for one WriteBatch, of all its string tensors that are in S3."""

TENSOR_RANK_MAX: Final = 64
"""Dimensions of one tensor."""

METADATA_BYTES_MAX: Final = 4 * MIB
"""Bytes of one serialized SummaryMetadata."""

BATCH_STORED_METADATA_BYTES_MAX: Final = 16 * MIB
"""Bytes of stored metadata of plugin `hparams` read for one WriteBatch, to be united with it."""

NAME_CHARS_MAX: Final = 10_000
"""Characters of a run's, a tag's or a hyperparameter's name."""

SESSION_HPARAMS_ITEMS_MAX: Final = 10_000
"""Hyperparameters (items) of one session that are set with a request."""

SESSION_TIME_SECONDS_MAX: Final = 253_402_300_799
"""Seconds since the epoch of a session's start or end: the end of the year 9999."""

LOGGED_CONTENT_TYPE_CHARS_MAX: Final = 255
"""Characters of a content type logged with audio.

RFC 6838, section 4.2, allows type and subtype names of 127 characters each, and a slash.
"""

FILE_NAME_CHARS_MAX: Final = 1_000
"""Characters of an event file's name."""

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

UPLOADS_ITEMS_MAX: Final = 500
"""Uploads (items) that one experiment records: one more removes the oldest."""

UPLOADS_PAGE_ITEMS_MAX: Final = 100
"""Uploads (items) on one page of their listing."""

UPLOAD_ORIGIN_CHARS_MAX: Final = 16_000
"""Characters of the origin of one upload, all names and values together."""

UPLOAD_PACKAGES_ITEMS_MAX: Final = 1_000
"""Packages (items) of one upload's environment."""

UPLOAD_PACKAGES_CHARS_MAX: Final = 32_000
"""Characters of these packages together."""

UPLOAD_DETAIL_CHARS_MAX: Final = 200
"""Characters that say how a training ended."""

UPLOAD_SILENT_SECONDS_MAX: Final = 900
"""Seconds after which an upload that is running, and says nothing, is silent; `tbupload` says
something every 300 s."""

EXPERIMENT_WORDS_ITEMS_MAX: Final = 500
"""Words (items) of one experiment that a search finds; the first ones of its texts."""

EXPERIMENT_WORD_CHARS_MAX: Final = 40
"""Characters of a word that are searched."""

SEARCH_WORDS_ITEMS_MAX: Final = 8
"""Words (items) of one search; further ones are ignored."""

LIST_PAGE_ITEMS: Final = 25
"""Experiments (items) on one page of the list for people."""

LIST_FILTER_ITEMS_MAX: Final = 200
"""Tags and people (items) that the list for people offers as filters."""

CHART_TAGS_ITEMS_MAX: Final = 40
"""Scalar tags (items) that the list offers to draw."""

CHART_RUNS_ITEMS_MAX: Final = 100
"""Runs (items) of an experiment that its curves are chosen from: the first by the hash of their
names, so that they do not depend on the order of arrival.
"""

CHART_SERIES_ITEMS_MAX: Final = 1_000
"""Series (items) of a run among which its scalar tags are looked for."""

CHART_CURVES_ITEMS_MAX: Final = 3
"""Curves (items) of one experiment in the list."""

CHART_POINTS: Final = 60
"""Points of one curve in the list."""

NOTES_MARKDOWN_CHARS_MAX: Final = 20_000
"""Characters of a description or of notes that our page renders as Markdown.

A longer one is shown as it is.
"""

NOTES_MARKDOWN_SECONDS_MAX: Final = 0.15
"""Seconds of CPU time to parse one; prose of that length takes 0.025. Else it is shown as it is."""

DELETED_EXPERIMENT_SECONDS: Final = 7 * 24 * 3600
"""Seconds after which a deleted experiment is erased; until then it can be restored."""

DELETED_RUNS_ITEMS_MAX: Final = 100
"""Runs in a request that deletes runs, or allows deleted ones; each is one transaction."""

ERASE_TRANSACTION_ITEMS_MAX: Final = 10_000
"""Rows (items) of a deleted experiment that one transaction erases."""

ERASE_REQUEST_SECONDS: Final = 5.0
"""Seconds for which a request that deletes runs or series erases points; the rest is left to the
background.
"""

ERASE_REQUEST_ITEMS_MAX: Final = 2_000
"""Rows (items) that one transaction of such a request erases."""

ERASE_PAUSE_SECONDS: Final = 0.05
"""Seconds between two such transactions, which leave the disk to others."""

ERASE_INTERVAL_SECONDS: Final = 60.0
"""Seconds after which a worker looks again for deleted experiments to erase."""

ERASE_EXPERIMENTS_ITEMS_MAX: Final = 100
"""Experiments (items) that one look finds."""

JSON_BODY_BYTES_MAX: Final = 1 * MIB
"""Bytes of a JSON request body."""

READ_POINTS_MAX: Final = 1_000_000
"""Points in one response: min(downsample, points) summed over the selected series."""

READ_BLOBS_MAX: Final = 1_000_000
"""Blobs listed in one response, of all points of all series; `sampling=all` has no such limit."""

READ_BYTES_MAX: Final = 256 * MIB
"""Bytes of tensors in one response, or of logged content types."""

COMPARISON_ITEMS_MAX: Final = 10
"""Items (experiments) of one comparison, each with its own token in the page's cookie."""

COMPARISON_NAME_CHARS_MAX: Final = 100
"""Characters of the name of an experiment in a comparison's URL."""

TIME_SERIES_CARDS_ITEMS_MAX: Final = 10
"""Items of one request of the Time Series dashboard (it sends one): the series of a card."""

SUGGESTED_TRIALS_ITEMS_MAX: Final = 1_000
"""Suggestions in one reply."""

SUGGESTION_TRIALS_ITEMS_MAX: Final = 10_000
"""Trials in one request for suggestions."""

SUGGESTION_TOTAL_ITEMS_MAX: Final = 100_000
"""Suggestions that an experiment may ask for altogether."""

SUGGESTION_PARAMETERS_ITEMS_MAX: Final = 100
"""Parameters of a search space: samplers take time in proportion to parameters and trials."""

SUGGESTION_LIST_ITEMS_MAX: Final = 10_000
"""Items of all lists of a search space, or of a search space of architectures."""

SUGGESTION_REPLY_BYTES_MAX: Final = 4 * MIB
"""Bytes of one reply with suggestions: what clients of gRPC accept by default."""

SUGGESTION_SECONDS: Final = 1.0
"""Seconds after which the suggestions that a request still lacks are drawn at random."""

RUN_FILES_MAX: Final = 1_000
"""Event files of a run, the first by their starts, that may begin an attempt.

Of later restarts, superseded points are not kept; the newest points are shown as always.
"""

SCAN_POINTS_MAX: Final = 100_000_000
"""Scalar points read for one response, before sampling."""

GRAPH_TEXT_BYTES_MAX: Final = 16 * MIB
"""Bytes of a graph or of run metadata to convert to text format, which is about 4 times as long."""

MARKDOWN_CHARS_MAX: Final = 64 * KIB
"""Characters of a text or description rendered as Markdown; longer ones are shown as plain text."""

MARKDOWN_SECONDS_MAX: Final = 1.0
"""Seconds to render one text as HTML; it is shown as plain text after that."""

MARKDOWN_TOTAL_SECONDS_MAX: Final = 5.0
"""Seconds to render all texts of one response; the remaining ones are shown as plain text."""

HANDLER_ITEMS_MAX: Final = 4
"""Items of work (requests) that run at once in TensorBoard's handler processes of one worker."""

HANDLER_SHARE_ITEMS_MAX: Final = 2
"""Items of these for the requests of one account."""

HANDLER_SECONDS_MAX: Final = 30
"""Seconds after which the handler process of a request is killed."""

HANDLER_MEMORY_BYTES_MAX: Final = 512 * MIB
"""Bytes of memory that a handler process may allocate beyond those it starts with."""

CURSOR_SERIES_ITEMS_MAX: Final = 20_000
"""Series (items) in one change cursor."""

CURSOR_CHARS_MAX: Final = 700_000
"""Characters of a change cursor."""

CURSOR_IN_URL_CHARS_MAX: Final = 32_000
"""Characters of a change cursor in a URL, within `HEAD_BYTES_MAX`; longer ones are posted."""

CHANGES_POINTS_MAX: Final = 100_000
"""Points in one response of the change feed."""

CHANGES_BYTES_MAX: Final = 8 * MIB
"""Bytes of tensors in one response of the change feed, except that it has at least one point."""

LIVE_EVENT_POINTS_MAX: Final = 10_000
"""Points in one event of a live tail: the buffer of each slow reader."""

LIVE_STREAMS_MAX: Final = 200
"""Live tails (event streams) that one worker serves at once."""

LIVE_POLL_SECONDS: Final = 1.0
"""Seconds between two polls for changes of the experiments that are being followed."""

LIVE_GRANT_SECONDS: Final = 4.0
"""Seconds after which a live tail checks again that its reader may read."""

LIVE_KEEPALIVE_SECONDS: Final = 15.0
"""Seconds without data after which a live tail sends a comment, so that proxies keep it open."""

PAGE_ITEMS_MAX: Final = 1_000
"""Items on one page of a listing; series and streams have limits of their own."""

COUNTED_ROWS_MAX: Final = 400_000
"""Rows of runs and series that are counted for one page of experiments: a fraction of a second."""

RUNS_PAGE_ITEMS_MAX: Final = 10_000
"""Runs on one page of their list, if it is read in pages."""

SERIES_PAGE_ITEMS_MAX: Final = 10_000
"""Series on one page of their metadata."""

STREAMS_PAGE_ITEMS_MAX: Final = 10_000
"""Streams on one page."""

REQUEST_BODY_SECONDS_MAX: Final = 120
"""Seconds a client may take to send a request's body."""

BLOB_SECONDS_MAX: Final = 3_600
"""Seconds a client may take to send one large blob."""

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

OBJECT_CHECKS_PAGE_ITEMS_MAX: Final = 10_000
"""Objects on one page of an object check; `DIGEST_PAGE_SECONDS` may end it earlier."""

OBJECT_FAULTS_PAGE_ITEMS_MAX: Final = 1_000
"""Faulty objects from which a page of an object check ends; it may list up to 1,000 more."""

SCAN_CHUNK_POINTS: Final = 262_144
"""Scalar points held at once in a scan of a series; more unsealed points need several passes."""

SCAN_CHUNK_BYTES: Final = 16 * MIB
"""Bytes of tensors or of blob metadata held at once in a scan; at least one point's."""

FULL_SCAN_STREAMS_MAX: Final = 8
"""Streams at full resolution or of samples over `SCAN_CHUNK_BYTES` that a worker sends at once."""

DIGEST_POINTS_PAGE_ITEMS_MAX: Final = 100_000
"""Points on one page of a series' digest records."""

RESERVED_CONNECTIONS_ITEMS: Final = 2
"""Database connections (items) of a worker's pool reserved for look-ups and compaction."""

CALLER_REQUESTS_ITEMS_MAX: Final = 2
"""Requests (items) of one account processed at once by a worker; half per anonymous address."""

CALLER_QUEUED_REQUESTS_ITEMS_MAX: Final = 200
"""Requests (items) of one caller queued in one worker; further ones are refused with 429."""

PACE_BURST_SECONDS: Final = 2.0
"""Seconds of the requests of an account or address that may come at once, after a pause.

Their number per second is a setting, of an address without an account.
"""

PACE_WAIT_SECONDS_MAX: Final = 5.0
"""Seconds that a request waits to keep the pace of its caller before it is refused with 429."""

ACCOUNT_PACE: Final = 4.0
"""Requests (items) of an account, in one worker, per request of an address without one.

It may work on two at once, an address on one: of the cheapest, this is about what it gets.
"""

IPV6_SITE_PACE: Final = 2.0
"""Requests (items) of all subnets of an IPv6 network of 48 bits, which anybody gets, likewise."""

CONNECTION_PACE: Final = 2.0
"""New connections (items) of an address or IPv6 network of 48 bits, likewise; others are reset."""

PROBE_PACE: Final = 0.2
"""Requests (items) of an address for `/healthz`, `/readyz` and `/metrics`, likewise."""

PACED_CALLERS_ITEMS_MAX: Final = 10_000
"""Accounts, addresses and networks (items) of which a worker remembers how many requests came."""

REFUSAL_SECONDS: Final = 5.0
"""Seconds that a refusal with 429 is held, unless its client disconnects before."""

QUEUE_WAIT_SECONDS_MAX: Final = 20.0
"""Seconds that a request is queued before it is refused with 429."""

REQUEST_BODIES_BYTES_MAX: Final = 128 * MIB
"""Bytes of incomplete request bodies that one worker holds at once."""

CALLER_REQUEST_BODIES_BYTES_MAX: Final = 64 * MIB
"""The same bytes of one account; a quarter of it per anonymous address."""

DECODING_BYTES_MAX: Final = 32 * MIB
"""Bytes of decompressed batches that one worker decodes at once; of one caller, one full batch."""

QUEUED_DECODING_BYTES_MIN: Final = 1 * MIB
"""Bytes of a decompressed batch from which its decoding is queued; others need little memory."""

CONTENTION_SECONDS: Final = 1.0
"""Seconds for which a caller counts as active after it started work.

Meanwhile, a worker processes one request at a time of each other caller.
"""

CALLER_BODY_BYTES_PER_SECOND: Final = 32 * MIB
"""Bytes of request bodies per second received from one account while others are active.

Half of it per anonymous address.
"""

UNSENT_RESPONSE_BYTES_MAX: Final = 256 * MIB
"""Bytes of unsent responses in one worker; further requests are refused with 429."""

CALLER_UNSENT_RESPONSE_BYTES_MAX: Final = 96 * MIB
"""The same bytes of one account; a third of it per anonymous address."""

RESPONSE_CHUNK_BYTES: Final = 256 * KIB
"""Bytes of a response written to the connection at once."""

RESPONSE_STALL_SECONDS_MAX: Final = 120
"""Seconds without progress after which the connection of a response is closed."""

CALLER_FULL_SCAN_STREAMS_MAX: Final = 4
"""Streams at full resolution sent at once to one account; one per anonymous address."""

CALLER_LIVE_STREAMS_MAX: Final = 100
"""Live tails (streams) of one account in one worker; a quarter of it per anonymous address."""

SMALL_BODY_BYTES_MAX: Final = 16 * KIB
"""Bytes of a body that is read before the grant is checked, and reserves no memory.

At `CONNECTIONS_ITEMS_MAX`, all connections together hold 64 MiB of these.
"""

CALLER_CACHE_SECONDS: Final = 60.0
"""Seconds for which a worker caches the caller of a token or of a public link."""

CALLER_CACHE_ITEMS_MAX: Final = 10_000
"""Items in that cache: tokens and public links."""

HEAD_BYTES_MAX: Final = 48 * KIB
"""Bytes of a request's first line and headers."""

REFUSED_CONNECTION_SECONDS: Final = 2.0
"""Seconds for which a connection stays open after bytes that were not a request, to be read."""

REQUEST_HEADER_SECONDS_MAX: Final = 10.0
"""Seconds a client may take to send request headers, from the connection or their first byte on."""

CONNECTIONS_ITEMS_MAX: Final = 4_096
"""Connections (items) that a worker has open; fewer if the limit of open files is lower."""

MIGRATE_LOCK_SECONDS_MAX: Final = 3.0
"""Seconds a migration waits for a table lock; all later statements on the table wait behind it."""

MIGRATE_PAUSE_SECONDS: Final = 5.0
"""Seconds between two attempts of a migration to lock its tables."""

MIGRATE_STATEMENT_SECONDS_MAX: Final = 30.0
"""Seconds a statement of a migration may take while the transaction's locks keep others out."""

MIGRATE_CONCURRENT_SECONDS_MAX: Final = 24 * 3600.0
"""Seconds a statement of a migration may take that works beside reads and writes."""

MIGRATE_POLL_SECONDS: Final = 0.5
"""Seconds between two looks whether another process still migrates the database."""

MIGRATE_ATTEMPTS_MAX: Final = 100
"""Attempts of a migration to lock its tables: about 13 minutes of the seconds above."""

READY_CACHE_SECONDS: Final = 2.0
"""Seconds for which /readyz repeats a success: it is polled often, and each check writes 1 MiB."""

TOKEN_SWEEP_ITEMS_MAX: Final = 10
"""Ended tokens deleted at a time, whenever a new one is created."""

ENDED_TOKEN_SECONDS_MAX: Final = 90 * 24 * 3600
"""Seconds after which an expired or revoked token is deleted; it is listed until then."""

FROZEN_LINKS_ITEMS_MAX: Final = 20
"""Frozen links (items) of an experiment: each is a copy of what it shows."""

SNAPSHOT_POINTS_MAX: Final = 100_000_000
"""Points of an experiment, or of a slice of it, that a frozen link may copy."""

SNAPSHOT_SECONDS_MAX: Final = 300.0
"""Seconds that the copy of a frozen link may take; it is one transaction."""

SNAPSHOT_CHUNK_POINTS: Final = 5_000_000
"""Scalar points that one statement copies; a statement has 60 s."""

SNAPSHOT_CHUNK_ITEMS: Final = 20_000
"""Tensors and blob sequences that one statement copies, and series."""

PERSON_SESSION_SECONDS_MAX: Final = 30 * 24 * 3600
"""Seconds after its sign-in from which a browser session is not valid."""

PERSON_SESSION_IDLE_SECONDS_MAX: Final = 14 * 24 * 3600
"""Seconds after its last use from which a browser session is not valid."""

PERSON_SESSIONS_ITEMS_MAX: Final = 50
"""Browser sessions (items) of a person.

A sign-in beyond them ends the one that was used least recently.
"""

SIGN_IN_SWEEP_ITEMS_MAX: Final = 10
"""Expired rows (items) of a table deleted at a time, whenever a sign-in adds one."""

SIGN_IN_LINK_SECONDS: Final = 24 * 3600
"""Seconds for which a one-time sign-in link of an administrator is valid."""

SIGN_IN_LINK_LOCAL_SECONDS: Final = 15 * 60
"""Seconds for which a sign-in link is valid that `tbservice up` prints, or a person makes."""

INVITATION_SECONDS: Final = 7 * 24 * 3600
"""Seconds for which an invitation is valid, unless it says otherwise."""

INVITATION_SECONDS_MAX: Final = 30 * 24 * 3600
"""Seconds for which an invitation can be valid."""

OPEN_INVITATIONS_ITEMS_MAX: Final = 1_000
"""Invitations (items) of a workspace that are open."""

PERSON_WORKSPACES_ITEMS_MAX: Final = 5
"""Workspaces (items) of which a person who owns them can create no more.

Invitations and administrators can make them own more.
"""

PERSONAL_TOKENS_ITEMS_MAX: Final = 1_000
"""Tokens (items) of a person that a list shows, the newest."""

MEMBERS_ITEMS_MAX: Final = 2_000
"""Members (items) of a workspace."""

EMAIL_CHARS_MAX: Final = 254
"""Characters of an e-mail address (RFC 5321, 4.5.3.1.3, less the angle brackets)."""

PERSON_NAME_CHARS_MAX: Final = 200
"""Characters of a person's name; a longer one of a provider is cut."""

USER_AGENT_CHARS_MAX: Final = 300
"""Characters kept of what a browser says of itself."""

ADDRESS_CHARS_MAX: Final = 64
"""Characters kept of a client's network address."""

LOG_MESSAGE_CHARS_MAX: Final = 2_000
"""Characters of a log record's message, escaped; the middle of a longer one is left out."""

LOG_TRACEBACK_CHARS_MAX: Final = 16_000
"""Characters of a log record's traceback; the middle of a longer one is left out."""

LOG_REPEATS_MAX: Final = 20
"""Log records written per origin (line of code, exception type) and `LOG_WINDOW_SECONDS`."""

LOG_WINDOW_SECONDS: Final = 60.0
"""Seconds after which the suppressed log records of an origin are summed up in one line."""

COMPACTION_STOP_SECONDS_MAX: Final = 3.0
"""Seconds that a stopping process continues to compact queued runs."""

COMPACTION_SEARCH_SECONDS: Final = 7 * 24 * 3600
"""Seconds since the last write within which experiments are searched for pending compactions.

At the start of a process, and every `COMPACTION_SEARCH_ALL_SECONDS`.
"""

COMPACTION_SEARCH_ALL_SECONDS: Final = 24 * 3600
"""Seconds after which a process repeats that search."""

COMPACTION_SEARCH_INTERVAL_SECONDS: Final = 600.0
"""Mean seconds between two searches of one process for what another host has left uncompacted."""

COMPACTION_SEARCH_RECENT_SECONDS: Final = 3600
"""Seconds since the last write within which these look; longer than a host's queue ever waits."""

COMPACTION_SETTLED_SECONDS: Final = 180
"""Seconds without data after which these take the small write buffers of an experiment, too.

Until then, its runs may be in the queue of the host that receives them.
"""

HPARAMS_COLUMN_ITEMS_MAX: Final = 10_000
"""Columns (items of `col_params`) in one request for session groups."""

HPARAMS_CELL_ITEMS_MAX: Final = 5_000_000
"""Values (cells) compared for one request: sessions, times columns to filter and to sort by.

Each takes up to 2 microseconds and 12 bytes. So 100,000 sessions can have 50 such columns.
"""

PATTERN_STEPS_MAX: Final = 2_000_000_000
"""Steps of RE2 for one request: instructions of a compiled expression, times characters of texts.

One takes up to 8 ns, but 0.5 ns or less with all expressions that are not made to be slow.
"""

CUSTOM_SCALARS_TAGS_ITEMS_MAX: Final = 5_000
"""Items (tags of a run) that one chart of the Custom Scalars dashboard may show.

100,000 took a handler 20 s, and no page draws them.
"""

HPARAMS_PATTERN_ITEMS_MAX: Final = 100
"""Regular expressions in one request for session groups: compiled, one may have 0.5 MiB."""

HPARAMS_CONTENT_BYTES_MAX: Final = 128 * MIB
"""Bytes of the hparams plugin's content in one experiment: summaries, starts and ends."""

HPARAMS_VALUE_ITEMS_MAX: Final = 4_000_000
"""Values of hyperparameters of all sessions of one experiment: 2,000 sessions of 2,000, say."""

HPARAMS_RESPONSE_ITEMS_MAX: Final = 1_000_000
"""Values in one response of session groups: hyperparameters, and metrics of groups and sessions."""

SESSION_TABLE_COLUMN_ITEMS_MAX: Final = 20_000
"""Columns (items) of the table of sessions; with more it has no hyperparameters and metrics."""

HPARAMS_CACHE_BYTES: Final = 256 * MIB
"""Bytes of decoded hparams records that one worker caches, as estimated."""

HPARAMS_LEVEL_ITEMS_MAX: Final = 100
"""Levels of directories between a run and the session that it belongs to."""

HPARAMS_RUNNING_SECONDS_MAX: Final = 900.0
"""Seconds since the newest data of a session without an end for which it counts as running."""

HPARAMS_EVALS_POINTS: Final = 1_000
"""Points of a metric in one response: as many as the stock page shows of a series."""

GRPC_MESSAGE_BYTES_MAX: Final = 16 * MIB
"""Bytes of one message that a gRPC client sends: about 200,000 metric logs of Katib."""

GRPC_MESSAGE_FIELDS_MAX: Final = 2_000_000
"""Fields in one message of a gRPC client: built, each empty message takes 64 bytes of memory."""

GRPC_MESSAGE_SECONDS_MAX: Final = 60.0
"""Seconds a client may take to send the message of a gRPC call.

Meanwhile the call holds `GRPC_MESSAGE_BYTES_MAX` of its caller's share of request bodies.
"""

GRPC_DETAIL_CHARS_MAX: Final = 500
"""Characters of an error's text in a gRPC status.

Clients refuse trailers over 8 KiB, and 4-byte characters take 12 bytes there.
"""

GRPC_CALLS_ITEMS_MAX: Final = 4_096
"""Calls (items) of gRPC that one worker has open at once; further ones are refused."""

GRPC_CONNECTION_CALLS_ITEMS_MAX: Final = 256
"""Calls (items) that one gRPC connection has open at once; its client queues further ones.

Except on a new connection, before the client has learned this limit: then the rest of a burst is
refused unhandled, which is UNAVAILABLE in Python. More would wait here instead, and be refused
after `QUEUE_WAIT_SECONDS_MAX`.
"""

GRPC_CONNECTIONS_ITEMS_MAX: Final = 4_096
"""Connections (items) that the gRPC port of a worker accepts at once."""

GRPC_ADDRESS_CONNECTIONS_ITEMS_MAX: Final = 512
"""The same connections of one client address; those above it are closed at the next look."""

GRPC_CONNECTIONS_LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at how many connections each client address has."""

GRPC_IDLE_CONNECTION_SECONDS_MAX: Final = 30.0
"""Seconds without a call after which a gRPC connection is closed; clients open another."""

GRPC_OPEN_CALLS_ITEMS_MAX: Final = 32
"""Calls (items) of health and reflection, which need no token, that one worker answers at once.

All addresses together have a quarter of it, each of them half of that.
"""

GRPC_OPEN_CALL_SECONDS_MAX: Final = 10.0
"""Seconds after which a call of health or reflection is ended."""

KATIB_REPORT_LOGS_MAX: Final = 250_000
"""Logs (points) in one ReportObservationLog: each takes about 500 bytes of memory."""

KATIB_REPORT_METRICS_MAX: Final = 10_000
"""Items (different metrics) in one ReportObservationLog."""

KATIB_VALUE_BYTES_MAX: Final = 64 * KIB
"""Bytes of one value of a metric, which Katib's own store has in a TEXT of MySQL."""

KATIB_REPEAT_SECONDS_MAX: Final = 600
"""Seconds in which an equal report of the same trial is taken for a client's retry."""

KATIB_REPEAT_ITEMS_MAX: Final = 16
"""Items (last reports of a trial) among which a retry is looked for."""

KATIB_READ_LOGS_MAX: Final = 1_000_000
"""Logs (points) in one GetObservationLog, which sends its response in one message.

Also those that one rule of early stopping counts, of all trials.
"""

KATIB_READ_BYTES_MAX: Final = 64 * MIB
"""Bytes of values in one GetObservationLog."""

KATIB_TRIALS_ITEMS_MAX: Final = 10_000
"""Trials (items) in one request, and suggestions in one response."""

KATIB_TRANSACTION_TRIALS_MAX: Final = 1_000
"""Trials (items) recorded in one transaction."""

KATIB_SUGGESTION_DAYS_MAX: Final = 30
"""Days of 86,400 seconds after which a suggestion that no trial used is deleted."""

KATIB_KEPT_POINTS_MAX: Final = 5_000_000
"""Points of other origin that a DeleteObservationLog may have to write again."""

DEVICE_LOGIN_SECONDS_MAX: Final = 15 * 60
"""Seconds a login of a command waits for a person's approval."""

DEVICE_LOGINS_WAITING_PER_NETWORK_ITEMS_MAX: Final = 50
"""Logins of commands (items) begun from one IPv4 address or IPv6 /64 that wait for approval."""

DEVICE_LOGINS_WAITING_ITEMS_MAX: Final = 10_000
"""Logins of commands (items) that wait for approval, in all."""

DEVICE_POLL_SECONDS: Final = 3
"""Seconds that a command waits between two questions whether its login was approved."""

DEVICE_CLIENT_CHARS_MAX: Final = 200
"""Characters in which a command describes itself to the person who approves its login."""

OIDC_SECONDS_MAX: Final = 10
"""Seconds that an OpenID provider may take for each answer."""

OIDC_CALLS_ITEMS_MAX: Final = 4
"""Calls (items) to OpenID providers at a time in one worker process."""

OIDC_METADATA_SECONDS: Final = 3600
"""Seconds after which a provider's metadata and keys are fetched again."""

OIDC_REFRESH_SECONDS_MIN: Final = 30
"""Seconds between two fetches of a provider's keys because a key was unknown."""

OIDC_CLOCK_SKEW_SECONDS_MAX: Final = 120
"""Seconds by which a provider's clock may differ from the server's."""

SIGN_IN_SECONDS_MAX: Final = 15 * 60
"""Seconds a person may take at an OpenID provider to sign in."""

SIGN_IN_PARAMETER_CHARS_MAX: Final = 4_096
"""Characters of each parameter that a provider's redirect may have."""

FORM_BYTES_MAX: Final = 2 * MIB
"""Bytes of a form that a person who is signed in posts; a character takes up to 12.

Notes and a description of full length fit in all scripts but those beyond Unicode's first plane.
"""

OPEN_FORM_BYTES_MAX: Final = 64 * KIB
"""Bytes of a form that anybody may post, such as the one to sign in."""

FORM_FIELDS_ITEMS_MAX: Final = 1_000
"""Fields (items) of such a form; a list of experiments may be selected on one page."""

EXPIRY_DAYS_MAX: Final = 3_650
"""Days of 86,400 seconds after which a token or link that a page makes expires at the latest."""

REPLICA_WAIT_SECONDS_MAX: Final = 0.2
"""Seconds that a read waits for the replica to replay what was committed, before the primary."""

REPLICA_BEHIND_SECONDS: Final = 1.0
"""Seconds for which a replica is not read after it was further behind than that."""

REPLICA_REST_SECONDS: Final = 5.0
"""Seconds after which one read tries a replica again that could not be reached."""

REPLICA_CONNECT_SECONDS_MAX: Final = 3
"""Seconds that a replica may take to connect, and to acknowledge what was sent to it."""

NODE_REST_SECONDS: Final = 5.0
"""Seconds after which one transaction tries a node of a cluster again that could not be reached."""

NODE_CONNECT_SECONDS_MAX: Final = 3
"""The same seconds as for a replica, of a node of a cluster."""

NUMBERING_LOCK_SECONDS_MAX: Final = 1
"""Seconds to wait for the numbers of new runs, tags or series beside a batch, in a cluster."""

NODE_LOOK_SECONDS: Final = 10.0
"""Seconds between two looks of a worker whether each node can write: 10 ms of CPU of the node."""

KNOWN_NODES_ITEMS_MAX: Final = 10_000
"""Experiments (items) of which a worker remembers the node of a cluster."""

ORPHAN_SECONDS_MIN: Final = 24 * 3600
"""Seconds after which an object that no row names counts as an orphan: an upload has ended by then.
"""

CHECK_ORPHANS_LISTED_ITEMS_MAX: Final = 1_000
"""Orphans (items) that a check lists by key; it counts the others."""

METRICS_FILE_BYTES: Final = MIB
"""Of each file that has metrics of one of several workers: 200 routes, each with a histogram."""

MAINTENANCE_BYTES_PER_SECOND: Final = 100 * MIB
"""Bytes a second that `check`, `backup` and `restore` read at most, unless told otherwise."""

MAINTENANCE_REPORT_SECONDS: Final = 5
"""Seconds between two lines of progress of these commands."""

BACKUP_PART_BYTES: Final = 64 * MIB
"""Bytes of each part of a dump in a bucket, of which S3 allows 10,000."""

BACKUP_THREADS_ITEMS: Final = 4
"""Objects (items) that a backup or a restore copies at a time."""
