"""Every limit the server keeps to, with its unit. A client learns the ones it must keep to from each `WriteResult`."""

from __future__ import annotations

from typing import Final

from tbwire import packing

KIB: Final = 1024
MIB: Final = 1024 * KIB

batch_bytes_max: Final = 16 * MIB
"""Bytes of one decompressed WriteBatch, and of its compressed form."""

batch_segments_max: Final = 10_000
"""Segments in one WriteBatch."""

batch_fields_max: Final = 500_000
"""Fields in one WriteBatch, of its segments and series; each of their tensors, blob sequences and blobs is one, too."""

batch_elements_max: Final = 2_000_000
"""Packed blocks and dimensions of tensors in one WriteBatch, with the other fields that stand beside them."""

blob_inline_bytes_max: Final = 256 * KIB
"""Bytes of a blob that may travel inside a batch."""

blob_bytes_max: Final = 1024 * MIB
"""Bytes of one blob."""

blob_piece_bytes: Final = 8 * MIB
"""Bytes of each piece of a large blob, but for its last; S3 takes no parts under 5 MiB."""

blob_piece_seconds_max: Final = 900
"""Seconds a client may take to send one piece of a blob."""

blob_unfinished_seconds_max: Final = 7 * 24 * 3600
"""Seconds after which the pieces of a blob that nobody went on sending are deleted."""

blob_sweep_items_max: Final = 10
"""Unfinished blobs that are deleted at a time, whenever another one is begun."""

blob_sequence_length_max: Final = 1_000
"""Blobs of one step."""

tensor_bytes_max: Final = 10 * MIB
"""Bytes of one tensor's data in a batch, and in a row of the database."""

tensor_object_bytes_max: Final = 64 * MIB
"""Bytes of one tensor's data that is an object in S3: a reader's answer holds it at once, and several times as text."""

batch_tensor_objects_max: Final = 2_000
"""Tensors in one WriteBatch whose bytes are objects in S3."""

batch_tensor_tables_bytes_max: Final = 64 * MIB
"""Bytes of the tables of lengths of all string tensors in one WriteBatch that are objects: these are read."""

tensor_rank_max: Final = 64
"""Dimensions of one tensor."""

metadata_bytes_max: Final = 4 * MIB
"""Bytes of one serialized SummaryMetadata."""

name_chars_max: Final = 10_000
"""Characters of a run's or a tag's name."""

logged_content_type_chars_max: Final = 255
"""Characters of a content type that was logged with audio: two names of 127 and a slash, as RFC 6838 allows."""

file_name_chars_max: Final = 1_000
"""Characters of an event file's name."""

experiment_name_chars_max: Final = 200
"""Characters of an experiment's name, and of a token's label."""

experiment_description_chars_max: Final = 100_000
"""Characters of an experiment's description."""

json_body_bytes_max: Final = 1 * MIB
"""Bytes of a JSON request body."""

read_points_max: Final = 1_000_000
"""Points in one answer: min(downsample, points) summed over the selected series."""

read_blobs_max: Final = 1_000_000
"""Blobs that are named in one answer, of all points of all series; `sampling=all` names more."""

read_bytes_max: Final = 256 * MIB
"""Bytes of tensors in one answer, or of logged content types."""

comparison_items_max: Final = 10
"""Items of one comparison: the experiments on one page, each with a token of its own in the page's cookie."""

comparison_name_chars_max: Final = 100
"""Characters of the name that a comparison's address gives to an experiment."""

cards_items_max: Final = 10
"""Items of one request of the Time Series dashboard, which asks for one: the series of a card."""

scan_points_max: Final = 100_000_000
"""Scalar points that are read for one answer, however few of them it keeps."""

graph_text_bytes_max: Final = 16 * MIB
"""Bytes of a graph or of run metadata that are written out as text, which is some 4 times as long."""

markdown_chars_max: Final = 64 * KIB
"""Characters of a text or a description that are shown as Markdown; longer ones are shown as plain text."""

markdown_seconds_max: Final = 1.0
"""Seconds that one text may take to become HTML; one that takes longer is shown as plain text."""

markdown_total_seconds_max: Final = 5.0
"""Seconds that all texts of one answer may take; those after that are shown as plain text."""

handler_items_max: Final = 4
"""Items of work (requests) that TensorBoard's handlers are at in one worker, each in a process of its own."""

handler_share_items_max: Final = 2
"""Items of these that may be of one workspace's data; comparisons of several workspaces are one workspace together."""

handler_seconds_max: Final = 30
"""Seconds that a handler process has for one request, after which it is killed."""

handler_memory_bytes_max: Final = 512 * MIB
"""Bytes of memory that a handler process may take beside those it begins with."""

cursor_series_items_max: Final = 20_000
"""Series, that is items of one cursor, that a reader of what is new may follow at once."""

cursor_chars_max: Final = 700_000
"""Characters of a reader's cursor."""

cursor_in_url_chars_max: Final = 32_000
"""Characters of a cursor in a URL, which `head_bytes_max` bounds: longer ones are posted."""

news_points_max: Final = 100_000
"""Points in one answer of those that are new; there is a next one when there are more."""

news_bytes_max: Final = 8 * MIB
"""Bytes of tensors in one answer of points that are new, unless a single one has more."""

live_event_points_max: Final = 10_000
"""Points in one event of a live tail: that much is held for each reader that is slow."""

live_streams_max: Final = 200
"""Live tails (streams of events) that one worker serves at once."""

live_poll_seconds: Final = 1.0
"""Seconds between two looks whether the experiments that somebody follows have changed."""

live_grant_seconds: Final = 10.0
"""Seconds after which is looked again whether a live tail's reader may still read."""

live_silence_seconds: Final = 15.0
"""Seconds without anything new after which a live tail sends a comment, so that nobody takes it for dead."""

page_items_max: Final = 1_000
"""Items on one page of a listing; `series_page_items_max` for series, `streams_page_items_max` for streams."""

series_page_items_max: Final = 10_000
"""Series on one page of their metadata."""

streams_page_items_max: Final = 10_000
"""Streams on one page."""

body_seconds_max: Final = 120
"""Seconds a client may take to send a request's body."""

blob_seconds_max: Final = 3_600
"""Seconds a client may take to send one large blob."""

block_points: Final = packing.BLOCK_POINTS_MAX
"""Points of a sealed scalar block, at most."""

packed_points_max: Final = block_points
"""Points of a packed block that an uploader sends."""

tail_rows_max: Final = 64
"""Tail rows of a series that make it due for a merge."""

tail_points_max: Final = 32_768
"""Points of a series, in its tail or in blocks that came in large, that make it due for a merge."""

tail_row_points_min: Final = 8
"""Points of a series that become a row of its tail; fewer wait for the next in the series' own row."""

packed_points_min: Final = 1_024
"""Points of a series in one batch from which they are packed as they come in; fewer stay raw records in its tail."""

sealed_points_min: Final = 2_048
"""Points from which a block may be sealed as it came in; smaller ones are packed together first."""

digest_page_seconds: Final = 10
"""Seconds of work after which a page of digests ends with the series under way; the next page goes on."""

object_checks_page_items_max: Final = 10_000
"""Objects on one page of a check that they are in the object store; `digest_page_seconds` ends it earlier."""

object_faults_page_items_max: Final = 1_000
"""Faulty objects after which a page of a check of objects ends; up to 1,000 more that were checked with them."""

piece_points: Final = 262_144
"""Scalar points held at once while a series is read in pieces; of those not sealed yet, more take several looks."""

piece_bytes: Final = 16 * MIB
"""Bytes of tensors, or of what is known of blobs, held at once while series are read in pieces; but one, at least."""

whole_streams_max: Final = 8
"""Streams at full resolution, or of samples over `piece_bytes`, that a worker sends at once; others come again."""

digest_points_page_items_max: Final = 100_000
"""Points on one page of a series' digest records."""

reserved_connections_items: Final = 2
"""Database connections (items) of a worker's pool that no request under work takes: for look-ups and compaction."""

caller_turns_items_max: Final = 2
"""Requests (items) of one workspace that a worker works on at once; an address without a token has half of it."""

caller_waiting_items_max: Final = 200
"""Requests (items) of one caller that wait for a turn in one worker; one more is refused with 429."""

turn_wait_seconds_max: Final = 20.0
"""Seconds that a request waits for its turn before it is refused with 429."""

bodies_bytes_max: Final = 128 * MIB
"""Bytes of request bodies on their way that one worker holds at once."""

caller_bodies_bytes_max: Final = 64 * MIB
"""The same bytes of one workspace's requests; an address without a token has a quarter of it."""

decoding_bytes_max: Final = 32 * MIB
"""Bytes of decompressed batches that one worker decodes at once: of one caller, one batch of the largest size."""

decoding_turn_bytes_min: Final = 1 * MIB
"""Bytes of a decompressed batch from which it waits for its turn to be decoded; smaller ones take little memory."""

contention_seconds: Final = 1.0
"""Seconds for which a caller counts as at work after it began to: as long, others get one turn at a time."""

caller_body_bytes_per_second: Final = 32 * MIB
"""Bytes of request bodies a second that a worker takes from one workspace while others work; half from an address."""

unread_bytes_max: Final = 256 * MIB
"""Bytes of answers that clients have not taken yet, at once in one worker; more answers are refused with 429."""

caller_unread_bytes_max: Final = 96 * MIB
"""The same bytes of one workspace's answers; an address without a token has a third of it."""

answer_piece_bytes: Final = 256 * KIB
"""Bytes of an answer that are given to the connection at once."""

answer_stall_seconds_max: Final = 120
"""Seconds in which a client that takes nothing of its answer is cut off."""

caller_streams_max: Final = 4
"""Streams at full resolution that a worker sends to one workspace at once; an address without a token has one."""

caller_tails_streams_max: Final = 100
"""Live tails (streams) of one workspace in one worker; an address without a token has a quarter of it."""

small_body_bytes_max: Final = 16 * KIB
"""Bytes of a body that takes no share of memory, and is read before rights are checked: 64 MiB on all connections."""

caller_hint_seconds: Final = 60.0
"""Seconds for which a worker remembers which workspace's share a token's requests count towards."""

caller_hint_tokens_max: Final = 10_000
"""Tokens of which a worker remembers that."""

head_bytes_max: Final = 48 * KIB
"""Bytes of a request's first line and headers."""

header_seconds_max: Final = 10.0
"""Seconds that a client may take to send a request's headers after it has begun to, or has connected."""

connections_items_max: Final = 4_096
"""Connections (items) that a worker holds open at once; fewer where the system allows fewer files to be open."""

migrate_lock_seconds_max: Final = 3.0
"""Seconds a migration waits for a table's lock; for as long, every statement on that table waits behind it."""

migrate_pause_seconds: Final = 5.0
"""Seconds between two attempts of a migration that did not get a lock."""

migrate_attempts_max: Final = 100
"""Attempts of a migration to get its locks, some 13 minutes with the seconds of the two limits above."""

ready_seconds: Final = 2.0
"""Seconds for which a good answer of /readyz is repeated: a balancer asks often, and each look writes 1 MiB."""
token_sweep_items_max: Final = 10
"""Tokens that have ended and are deleted at a time, whenever another one is made."""

ended_token_seconds_max: Final = 90 * 24 * 3600
"""Seconds after which a token that expired or was revoked is deleted; until then it is listed."""

log_message_chars_max: Final = 2_000
"""Characters of a log record's message, once escaped; its middle is left out."""

log_traceback_chars_max: Final = 16_000
"""Characters of a log record's traceback; its middle is left out."""

log_repeats_max: Final = 20
"""Records of one origin (a line of code, or all of a traceback) in `log_window_seconds`; others are only counted."""

log_window_seconds: Final = 60.0
"""Seconds after which the suppressed log records of an origin are counted in one line, and others written again."""

merge_stop_seconds_max: Final = 3.0
"""Seconds that a stopping process goes on merging what is queued; a service that starts later finds the rest."""

merge_search_seconds: Final = 7 * 24 * 3600
"""Seconds since an experiment was written to, up to which a service that starts looks for what is unmerged in it."""
