"""The embedded commit log: topics, partitions and groups in a directory, shared by processes without a server."""

from headwater.state.log.batch import Headers, NewRecord, Record
from headwater.state.log.catalog import Log
from headwater.state.log.errors import CorruptLog, NewerFormat, OutOfRange, StorageError, TopicExists, UnknownTopic
from headwater.state.log.files import REAL_FILES, Files
from headwater.state.log.groups import Group, Member, Membership
from headwater.state.log.inspection import BatchInfo
from headwater.state.log.partition import Partition
from headwater.state.log.repair import Loss, PartitionRepair, TopicRepair
from headwater.state.log.segment import Segment
from headwater.state.log.topics import TopicInfo

__all__ = [
    "REAL_FILES",
    "BatchInfo",
    "CorruptLog",
    "Files",
    "Group",
    "Headers",
    "Log",
    "Loss",
    "Member",
    "Membership",
    "NewRecord",
    "NewerFormat",
    "OutOfRange",
    "Partition",
    "PartitionRepair",
    "Record",
    "Segment",
    "StorageError",
    "TopicExists",
    "TopicInfo",
    "TopicRepair",
    "UnknownTopic",
]
