"""Training the judge: rows, tree packing, staged fine-tuning."""
