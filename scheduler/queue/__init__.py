"""The scheduling queue: pending pods, and when each is tried."""

from scheduler.queue.nominator import Nominator
from scheduler.queue.observer import NoObserver, QueueObserver
from scheduler.queue.places import MOVES, Move, Place
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.queue.view import PendingPod, QueueView

__all__ = [
    "MOVES",
    "Move",
    "NoObserver",
    "Nominator",
    "PendingPod",
    "Place",
    "QueueObserver",
    "QueueView",
    "SchedulingQueue",
]
