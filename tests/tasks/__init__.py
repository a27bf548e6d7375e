"""Tests of the task door."""
