"""The internal RPC: calls and streams of items between processes."""
