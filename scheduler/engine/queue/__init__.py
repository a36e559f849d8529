"""The scheduling queue: pending pods, and the order and time in which they are tried."""

from scheduler.engine.queue.contents import QueueView
from scheduler.engine.queue.pod_places import MOVES, Move, Place
from scheduler.engine.queue.ports import QueueObserver, QueuePlugins
from scheduler.engine.queue.scheduling_queue import SchedulingQueue

__all__ = [
    "MOVES",
    "Move",
    "Place",
    "QueueObserver",
    "QueuePlugins",
    "QueueView",
    "SchedulingQueue",
]
