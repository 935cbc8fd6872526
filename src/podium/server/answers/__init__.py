"""A request becomes a run, or a worker's reply, and that an answer: `tiers` and `gateway`, with the
conversation it goes on from, how hard to try, and watching from afar."""
