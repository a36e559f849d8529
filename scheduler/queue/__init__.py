"""The scheduling queue: pending pods, and the order and time in which they are tried."""

from scheduler.queue.pod_places import MOVES, Move, Place
from scheduler.queue.ports import QueueObserver, QueuePlugins
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.queue.view import QueueView

__all__ = [
    "MOVES",
    "Move",
    "Place",
    "QueueObserver",
    "QueuePlugins",
    "QueueView",
    "SchedulingQueue",
]
