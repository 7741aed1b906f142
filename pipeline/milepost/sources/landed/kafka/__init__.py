"""Lands the messages of Kafka topics."""
