"""Where rewards come from: verifier, judge, rules, labels, personal criteria, and mixes of them."""
