"""Run one stateful operator over epochs, without the rest of a job."""
