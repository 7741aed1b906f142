"""The campaign: random jobs, faults and commands, judged by the models (`make chaos`)."""
