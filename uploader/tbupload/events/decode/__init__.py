"""Decode the records of event files into columns of points: scalars as matrices, the rest singly.

The gain. A log directory has millions of records of about 50 bytes, nearly all of them scalars.
For a million of them on one core, a loop over protobuf messages needs 2.8 s, and TensorBoard's
reader in Python 120 s. Decoding in bulk needs about 0.1 s when steps repeat, and 0.15 s otherwise,
with every checksum verified (`docs/decoding.md`). One thread reads, so this limits the speed of a
complete upload.

The idea. An event is a protobuf message, and messages from the same call in a training loop have
their fields at the same byte offsets: only the wall time, the step and the value change. Stack such
records as the rows of a matrix, and each of these numbers is a column that one numpy call decodes.
Two questions remain: whether two records do have the same layout, and which tag each row is of.

Four ways, from the fastest to the most general. Each decodes the records that it can, and
leaves the others to the next one:

1. Repeating steps (`record_periods`, `step_rows`). A loop writes the same tags in the same order,
   so the sizes of its records repeat with a period: the number of records per step. All records of
   one step become one row of a matrix, and each tag has its own columns in it. Nothing is grouped,
   named or sorted per record. A tag costs about 60 microseconds for any number of steps, so
   this is used from 768 equal steps per chunk (STEPS_MIN).
2. Templates (`templates`, `factorize`). The other records are grouped by length, one record per
   row. The first row's layout is parsed, and all rows with the same bits where the layout is
   decided are its template; the other rows are tried again with another template. In a
   template, the bytes of the tag (and of the metadata) distinguish rows: they are numbered like a
   categorical column, and each distinct name is decoded once.
3. Protobuf, record by record (`decoder`, `summaries`, `tensor_protos`, `legacy`): images, tensors,
   graphs, hparams, scalars in an unusual layout, groups of fewer than 8 records, and names
   that the registry knows as something else than a scalar series.
4. Field by field, without loading the record: records over 8 MiB (`tbupload.events.large_records`).

How a layout is recognised. `event_layout` parses one event and returns the byte ranges of its
numbers, tags and metadata, or None when it is not an event of plain scalars. From it `layout_cache`
makes a mask of the bits that decide the layout: all keys, lengths and data types, and of the step
the continuation bit of each byte of its varint, but no bit of wall time, value, tag or metadata.
An event with the same masked bits as a parsed one has the same layout, and does not have to be
parsed. `record_rows` finds the bits in which any two rows differ, 64 at a time; if none of them
is in the mask, one comparison has proved that all rows have the same layout.

Checksums. CRC-32C is linear, so the checksums of a matrix cost one table look-up per column that is
not constant (`tbupload.events.linear_checksum`). Damaged rows are counted, all others decoded.

Order. The first value of a tag in a file decides which series it is, so names are resolved in file
order, together with the records that protobuf reads (`series_names`, `decoder`). `columns` then
puts the points of each series in file order. Several small files can be decoded as one buffer
(`file_parts`): they share layouts and matrices, and each has its own registry of tags.

Protobuf is the reference: a layout is only accepted for bytes that protobuf would read in the same
way. Property tests compare the ways on ordinary, unusual and damaged records
(`tests/unit/test_bulk_decoding.py`, `tests/unit/test_step_rows.py`).
"""
