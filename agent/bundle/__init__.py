"""Evidence bundles: what a vendor needs to judge a case, without secrets and prompts, of a bounded size."""
