"""The headline experiment of policy training; the protocol is docs/headline.md."""
