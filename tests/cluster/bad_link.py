#!/usr/bin/env python3
"""A link between two network namespaces that drops, reorders and delays, for kernels without netem.

    bad_link.py HOST_NAMESPACE BRIDGE_NAMESPACE NAME [--drop P] [--reorder P] [--delay-ms MS] [--seed N]

Makes eth0 in the host's namespace and NAME in the bridge's, without addresses and down, says "ready", and hands
frames on until it is ended. P is the probability of each frame, both ways.
"""
import argparse
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import struct
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0002, 0x1000, 0x40000000
REORDERED_SECONDS = 0.003  # a frame that is held back so long is overtaken by those behind it


def enter(namespace):
    with open(f"/run/netns/{namespace}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")


def make_tap(name):
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return tap


class Link:
    def __init__(self, asked, taps):
        self.asked, self.taps = asked, taps
        self.random = random.Random(asked.seed)
        self.waiting, self.order = [], itertools.count()
        self.handed_on = self.dropped = self.reordered = 0

    def take(self, source):
        target = self.taps[1 - self.taps.index(source)]
        for _ in range(64):
            try:
                frame = os.read(source, 65536)
            except (BlockingIOError, OSError):  # nothing more, or an interface that is down
                return
            if self.random.random() < self.asked.drop:
                self.dropped += 1
                continue
            seconds = self.asked.delay_ms / 1e3
            if self.random.random() < self.asked.reorder:
                self.reordered += 1
                seconds += REORDERED_SECONDS
            if seconds == 0:
                self.hand_on(target, frame)
            else:
                heapq.heappush(self.waiting, (time.monotonic() + seconds, next(self.order), target, frame))

    def hand_on(self, target, frame):
        try:
            os.write(target, frame)
            self.handed_on += 1
        except OSError:  # it is down, or full, as a switch may be
            self.dropped += 1

    def run(self):
        said = time.monotonic()
        while True:
            wait = max(0.0, self.waiting[0][0] - time.monotonic()) if self.waiting else 1.0
            ready, _, _ = select.select(self.taps, [], [], min(wait, 1.0))
            for source in ready:
                self.take(source)
            while self.waiting and self.waiting[0][0] <= time.monotonic():
                _, _, target, frame = heapq.heappop(self.waiting)
                self.hand_on(target, frame)
            if time.monotonic() - said > 0.25:
                said = time.monotonic()
                print(f"frames {self.handed_on} dropped {self.dropped} reordered {self.reordered}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ("host", "bridge", "name"):
        parser.add_argument(name)
    for name in ("--drop", "--reorder", "--delay-ms"):
        parser.add_argument(name, type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    enter(asked.host)
    host_tap = make_tap("eth0")
    enter(asked.bridge)
    bridge_tap = make_tap(asked.name)
    print("ready", flush=True)
    Link(asked, [host_tap, bridge_tap]).run()


main()
