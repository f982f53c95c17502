"""The copy: census, plan, extract, transform, load, ledger."""
