"""The neighbour search: exact, streamed, masked. Everything above reads its lists."""
