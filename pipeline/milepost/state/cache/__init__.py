"""The node-local cache of decoded runs: always disposable."""
