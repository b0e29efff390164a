"""Naive twins: each mechanism as plain loops over positions, one sentence at a time, straight from its equations."""
