"""Work spread over a Ray cluster, whatever the work is.

    with taken("auto", Seat, opening, replies, on_cards=False, lost="…") as seats:
        done = await seats.perform(...)

A *seat* is a process on some machine of the cluster that does one kind of work; what it does is
for those who spread something (`podium.evals.cluster`, `podium.train.cluster`). Here is what all
of them share: how a cluster is joined and seats are taken (`joining`), who gets what, and what
happens when a seat is lost (`seats`), and where replies are kept (`replies`).

Ray is imported when a cluster is joined, and not before.
"""

from podium.cluster.joining import taken
from podium.cluster.replies import BorrowedReplies, Replies
from podium.cluster.seats import Seats

__all__ = ["BorrowedReplies", "Replies", "Seats", "taken"]
