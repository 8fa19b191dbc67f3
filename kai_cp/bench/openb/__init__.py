"""The openb suite: the protocol of "Beware of Fragmentation" (USENIX ATC 2023) on Alibaba's trace."""
