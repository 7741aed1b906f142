"""Figures of epochs: their phases, and one permanent row per epoch."""
