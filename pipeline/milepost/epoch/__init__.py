"""One epoch, as the job master and the data plane both see it: plan, input record, answers, metadata, code hash."""
