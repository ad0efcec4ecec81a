from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PluginData(_message.Message):
    __slots__ = ("version", "experiment", "session_start_info", "session_end_info")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    SESSION_START_INFO_FIELD_NUMBER: _ClassVar[int]
    SESSION_END_INFO_FIELD_NUMBER: _ClassVar[int]
    version: int
    experiment: bytes
    session_start_info: SessionStart
    session_end_info: bytes
    def __init__(self, version: _Optional[int] = ..., experiment: _Optional[bytes] = ..., session_start_info: _Optional[_Union[SessionStart, _Mapping]] = ..., session_end_info: _Optional[bytes] = ...) -> None: ...

class SessionStart(_message.Message):
    __slots__ = ("hparams", "model_uri", "monitor_url", "group_name", "start_time_secs", "wall_times")
    class Hparam(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    HPARAMS_FIELD_NUMBER: _ClassVar[int]
    MODEL_URI_FIELD_NUMBER: _ClassVar[int]
    MONITOR_URL_FIELD_NUMBER: _ClassVar[int]
    GROUP_NAME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_SECS_FIELD_NUMBER: _ClassVar[int]
    WALL_TIMES_FIELD_NUMBER: _ClassVar[int]
    hparams: _containers.RepeatedCompositeFieldContainer[SessionStart.Hparam]
    model_uri: str
    monitor_url: str
    group_name: str
    start_time_secs: float
    wall_times: WallTimes
    def __init__(self, hparams: _Optional[_Iterable[_Union[SessionStart.Hparam, _Mapping]]] = ..., model_uri: _Optional[str] = ..., monitor_url: _Optional[str] = ..., group_name: _Optional[str] = ..., start_time_secs: _Optional[float] = ..., wall_times: _Optional[_Union[WallTimes, _Mapping]] = ...) -> None: ...

class WallTimes(_message.Message):
    __slots__ = ("hparams", "model_uri", "monitor_url", "group_name", "start_time_secs", "record")
    HPARAMS_FIELD_NUMBER: _ClassVar[int]
    MODEL_URI_FIELD_NUMBER: _ClassVar[int]
    MONITOR_URL_FIELD_NUMBER: _ClassVar[int]
    GROUP_NAME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_SECS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    hparams: _containers.RepeatedScalarFieldContainer[float]
    model_uri: float
    monitor_url: float
    group_name: float
    start_time_secs: float
    record: float
    def __init__(self, hparams: _Optional[_Iterable[float]] = ..., model_uri: _Optional[float] = ..., monitor_url: _Optional[float] = ..., group_name: _Optional[float] = ..., start_time_secs: _Optional[float] = ..., record: _Optional[float] = ...) -> None: ...
