"""The control plane binary for the end-to-end tests: a small Go module and how it is built."""
