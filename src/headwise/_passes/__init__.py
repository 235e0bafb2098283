"""Passes of one model over one task's examples, whole or with heads silenced: what estimators and lesions
both stand on."""
