"""What samples a policy's turns: transformers here, or vLLM with published weights."""
