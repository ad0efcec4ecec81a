from tbwire import wire_pb2 as _wire_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("begin", "part", "end", "lost", "table")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    begin: Begin
    part: Part
    end: End
    lost: LostPoint
    table: bytes
    def __init__(self, begin: _Optional[_Union[Begin, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., lost: _Optional[_Union[LostPoint, _Mapping]] = ..., table: _Optional[bytes] = ...) -> None: ...

class LostPoint(_message.Message):
    __slots__ = ("run", "tag", "step", "is_unreadable", "detail")
    RUN_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    IS_UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    run: str
    tag: str
    step: int
    is_unreadable: bool
    detail: str
    def __init__(self, run: _Optional[str] = ..., tag: _Optional[str] = ..., step: _Optional[int] = ..., is_unreadable: bool = ..., detail: _Optional[str] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("sampling",)
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    sampling: str
    def __init__(self, sampling: _Optional[str] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("series", "scalars", "tensors", "blob_sequences", "is_last")
    SERIES_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    BLOB_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    series: Series
    scalars: _wire_pb2.ScalarPoints
    tensors: _wire_pb2.TensorPoints
    blob_sequences: StoredSequencePoints
    is_last: bool
    def __init__(self, series: _Optional[_Union[Series, _Mapping]] = ..., scalars: _Optional[_Union[_wire_pb2.ScalarPoints, _Mapping]] = ..., tensors: _Optional[_Union[_wire_pb2.TensorPoints, _Mapping]] = ..., blob_sequences: _Optional[_Union[StoredSequencePoints, _Mapping]] = ..., is_last: bool = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("run", "tag", "plugin", "data_class", "summary_metadata", "total")
    RUN_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    DATA_CLASS_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_METADATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    run: str
    tag: str
    plugin: str
    data_class: int
    summary_metadata: bytes
    total: int
    def __init__(self, run: _Optional[str] = ..., tag: _Optional[str] = ..., plugin: _Optional[str] = ..., data_class: _Optional[int] = ..., summary_metadata: _Optional[bytes] = ..., total: _Optional[int] = ...) -> None: ...

class StoredSequencePoints(_message.Message):
    __slots__ = ("steps", "wall_times", "sequences")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    WALL_TIMES_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    steps: bytes
    wall_times: bytes
    sequences: _containers.RepeatedCompositeFieldContainer[StoredSequence]
    def __init__(self, steps: _Optional[bytes] = ..., wall_times: _Optional[bytes] = ..., sequences: _Optional[_Iterable[_Union[StoredSequence, _Mapping]]] = ...) -> None: ...

class StoredSequence(_message.Message):
    __slots__ = ("blobs", "logged_content_type")
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    LOGGED_CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    blobs: _containers.RepeatedCompositeFieldContainer[StoredBlob]
    logged_content_type: str
    def __init__(self, blobs: _Optional[_Iterable[_Union[StoredBlob, _Mapping]]] = ..., logged_content_type: _Optional[str] = ...) -> None: ...

class StoredBlob(_message.Message):
    __slots__ = ("key", "sha256", "size", "content_type")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    key: str
    sha256: bytes
    size: int
    content_type: str
    def __init__(self, key: _Optional[str] = ..., sha256: _Optional[bytes] = ..., size: _Optional[int] = ..., content_type: _Optional[str] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("series", "points")
    SERIES_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    series: int
    points: int
    def __init__(self, series: _Optional[int] = ..., points: _Optional[int] = ...) -> None: ...
