"""Errors that every part of the program may raise; the command line turns them into one sentence."""

from __future__ import annotations


class Unavailable(Exception):
    """Something outside is missing (a cluster, a file of a suite); the text says what is missing and what to
    do."""
