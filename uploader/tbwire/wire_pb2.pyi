from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WriteBatch(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    def __init__(self, segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("run", "file_name", "first_record_digest", "generation", "filters_digest")
    RUN_FIELD_NUMBER: _ClassVar[int]
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_RECORD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    FILTERS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    run: str
    file_name: str
    first_record_digest: bytes
    generation: int
    filters_digest: bytes
    def __init__(self, run: _Optional[str] = ..., file_name: _Optional[str] = ..., first_record_digest: _Optional[bytes] = ..., generation: _Optional[int] = ..., filters_digest: _Optional[bytes] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("stream", "start", "end", "start_checksum", "end_checksum", "series", "skipped", "run_start_time")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    START_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    END_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    RUN_START_TIME_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    start: int
    end: int
    start_checksum: int
    end_checksum: int
    series: _containers.RepeatedCompositeFieldContainer[Series]
    skipped: _containers.RepeatedCompositeFieldContainer[Skipped]
    run_start_time: float
    def __init__(self, stream: _Optional[_Union[Stream, _Mapping]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., start_checksum: _Optional[int] = ..., end_checksum: _Optional[int] = ..., series: _Optional[_Iterable[_Union[Series, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ..., run_start_time: _Optional[float] = ...) -> None: ...

class Skipped(_message.Message):
    __slots__ = ("reason", "count")
    REASON_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    count: int
    def __init__(self, reason: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("tag", "summary_metadata", "scalars", "tensors", "blob_sequences")
    TAG_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_METADATA_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    BLOB_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    tag: str
    summary_metadata: bytes
    scalars: ScalarPoints
    tensors: TensorPoints
    blob_sequences: BlobSequencePoints
    def __init__(self, tag: _Optional[str] = ..., summary_metadata: _Optional[bytes] = ..., scalars: _Optional[_Union[ScalarPoints, _Mapping]] = ..., tensors: _Optional[_Union[TensorPoints, _Mapping]] = ..., blob_sequences: _Optional[_Union[BlobSequencePoints, _Mapping]] = ...) -> None: ...

class ScalarPoints(_message.Message):
    __slots__ = ("steps", "wall_times", "values32", "values64", "blocks")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WALL_TIMES_FIELD_NUMBER: _ClassVar[int]
    VALUES32_FIELD_NUMBER: _ClassVar[int]
    VALUES64_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    steps: bytes
    wall_times: bytes
    values32: bytes
    values64: bytes
    blocks: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, steps: _Optional[bytes] = ..., wall_times: _Optional[bytes] = ..., values32: _Optional[bytes] = ..., values64: _Optional[bytes] = ..., blocks: _Optional[_Iterable[bytes]] = ...) -> None: ...

class TensorPoints(_message.Message):
    __slots__ = ("steps", "wall_times", "tensors")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WALL_TIMES_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    steps: bytes
    wall_times: bytes
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    def __init__(self, steps: _Optional[bytes] = ..., wall_times: _Optional[bytes] = ..., tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("dtype", "shape", "data", "histogram", "reference")
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    dtype: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    histogram: LegacyHistogram
    reference: BlobReference
    def __init__(self, dtype: _Optional[int] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., histogram: _Optional[_Union[LegacyHistogram, _Mapping]] = ..., reference: _Optional[_Union[BlobReference, _Mapping]] = ...) -> None: ...

class LegacyHistogram(_message.Message):
    __slots__ = ("min", "max", "num", "sum", "sum_squares", "bucket_limit", "bucket")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    SUM_SQUARES_FIELD_NUMBER: _ClassVar[int]
    BUCKET_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    min: float
    max: float
    num: float
    sum: float
    sum_squares: float
    bucket_limit: _containers.RepeatedScalarFieldContainer[float]
    bucket: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, min: _Optional[float] = ..., max: _Optional[float] = ..., num: _Optional[float] = ..., sum: _Optional[float] = ..., sum_squares: _Optional[float] = ..., bucket_limit: _Optional[_Iterable[float]] = ..., bucket: _Optional[_Iterable[float]] = ...) -> None: ...

class BlobSequencePoints(_message.Message):
    __slots__ = ("steps", "wall_times", "sequences")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WALL_TIMES_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    steps: bytes
    wall_times: bytes
    sequences: _containers.RepeatedCompositeFieldContainer[BlobSequence]
    def __init__(self, steps: _Optional[bytes] = ..., wall_times: _Optional[bytes] = ..., sequences: _Optional[_Iterable[_Union[BlobSequence, _Mapping]]] = ...) -> None: ...

class BlobSequence(_message.Message):
    __slots__ = ("blobs", "logged_content_type")
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    LOGGED_CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    blobs: _containers.RepeatedCompositeFieldContainer[Blob]
    logged_content_type: str
    def __init__(self, blobs: _Optional[_Iterable[_Union[Blob, _Mapping]]] = ..., logged_content_type: _Optional[str] = ...) -> None: ...

class Blob(_message.Message):
    __slots__ = ("content", "reference")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    reference: BlobReference
    def __init__(self, content: _Optional[bytes] = ..., reference: _Optional[_Union[BlobReference, _Mapping]] = ...) -> None: ...

class BlobReference(_message.Message):
    __slots__ = ("sha256", "size")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    size: int
    def __init__(self, sha256: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class WriteResult(_message.Message):
    __slots__ = ("cursors", "scalars", "tensors", "blobs", "limits")
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    scalars: int
    tensors: int
    blobs: int
    limits: Limits
    def __init__(self, cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ..., scalars: _Optional[int] = ..., tensors: _Optional[int] = ..., blobs: _Optional[int] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("stream", "offset", "checksum", "skipped")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    stream: Stream
    offset: int
    checksum: int
    skipped: _containers.RepeatedCompositeFieldContainer[Skipped]
    def __init__(self, stream: _Optional[_Union[Stream, _Mapping]] = ..., offset: _Optional[int] = ..., checksum: _Optional[int] = ..., skipped: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("batch_bytes_max", "blob_inline_bytes_max", "blob_bytes_max", "tensor_bytes_max", "name_chars_max", "metadata_bytes_max", "blob_sequence_length_max", "tensor_rank_max", "packed_points_max", "tensor_object_bytes_max", "logged_content_type_chars_max")
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BLOB_INLINE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BLOB_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    TENSOR_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    NAME_CHARS_MAX_FIELD_NUMBER: _ClassVar[int]
    METADATA_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BLOB_SEQUENCE_LENGTH_MAX_FIELD_NUMBER: _ClassVar[int]
    TENSOR_RANK_MAX_FIELD_NUMBER: _ClassVar[int]
    PACKED_POINTS_MAX_FIELD_NUMBER: _ClassVar[int]
    TENSOR_OBJECT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    LOGGED_CONTENT_TYPE_CHARS_MAX_FIELD_NUMBER: _ClassVar[int]
    batch_bytes_max: int
    blob_inline_bytes_max: int
    blob_bytes_max: int
    tensor_bytes_max: int
    name_chars_max: int
    metadata_bytes_max: int
    blob_sequence_length_max: int
    tensor_rank_max: int
    packed_points_max: int
    tensor_object_bytes_max: int
    logged_content_type_chars_max: int
    def __init__(self, batch_bytes_max: _Optional[int] = ..., blob_inline_bytes_max: _Optional[int] = ..., blob_bytes_max: _Optional[int] = ..., tensor_bytes_max: _Optional[int] = ..., name_chars_max: _Optional[int] = ..., metadata_bytes_max: _Optional[int] = ..., blob_sequence_length_max: _Optional[int] = ..., tensor_rank_max: _Optional[int] = ..., packed_points_max: _Optional[int] = ..., tensor_object_bytes_max: _Optional[int] = ..., logged_content_type_chars_max: _Optional[int] = ...) -> None: ...
