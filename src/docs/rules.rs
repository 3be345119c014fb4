//! The rules that make the promise true. The documentation refers to them by number.
//!
//! **At most one participant of an election considers itself leader at any instant**, and the fences of an
//! election strictly increase. Uncertainty resolves to *not leader*.
//!
//! 1. **Only durations cross machines.** Every timestamp in the row is the database's, read together with the
//!    database's now. A participant uses differences of them, and its own wall clock for nothing.
//! 2. **The deadline counts from the send.** What a reply promises counts from the local instant before the
//!    request was sent: `sent + min(ttl, lease_duration) - safety_margin`. However slow the reply, the term is over
//!    before the lease is.
//! 3. **The clock does not stop.** Local instants come from a clock that goes on while the machine sleeps.
//! 4. **The deadline is checked where it is used.** `check`, `is_leader` and `fence` compare the clock with the
//!    deadline at every call: no cached flag, no lock, no thread that has to run first.
//! 5. **Lost is final.** Whoever finds the deadline passed ends the term for everybody; no later reply revives it.
//! 6. **The watchdog waits on nothing.** A thread of its own ends the term at the deadline and wakes the waiters; no
//!    database call, callback, log sink or lock can hold it up.
//! 7. **Every database call has a hard bound**, name look-up, connecting and TLS included, and a call that ran out of
//!    time leaves no thread, socket or pool slot behind. Its statement may still run later; rules 8 and 9 make
//!    that harmless.
//! 8. **An acquire names what it takes over.** It is a compare-and-swap on the exact state of the row that was
//!    observed: holder, fence, both times, and a mark that changes with every write. No clock and no identity
//!    decides. Every success is a new term with a higher fence.
//! 9. **Renew and release are guarded** by holder and fence, renew also by not being expired on the database's
//!    clock. A release keeps the row and its fence.
//! 10. **When to take over is decided on the candidate's own clock.** It waits, from when it first saw a state of the
//!     row, for as long as the holder of that state was promised; less at most a fortieth for the state's age. A
//!     released lease and its own last state it need not wait for. A record that went back, is gone, or belongs to
//!     another timeline is waited out for the longest lease that was seen. Only at its very first look does it
//!     believe the database's clock, and with [`Strict`](crate::ClockTrust::Strict) not even then. It never waits
//!     for longer than one lease, so no clock can block an election. A
//!     [takeover delay](crate::ConfigBuilder::takeover_delay) comes after that, never in its place.
//! 11. **Identities never repeat.** Each run of each participant has a random part of its own.
//! 12. **Stale commits can be made impossible**, not just unlikely. In the PostgreSQL that holds the lease, the fenced
//!     commit locks the lease's row in the caller's own transaction, checks holder, fence and expiry, and commits; no
//!     successor's term starts in between. Elsewhere the receiver compares fences: what a frozen leader sends after its
//!     term is refused by whatever keeps the highest that it has seen. See [`fencing`](super::fencing).
//! 13. **Nothing is left in a session**: no setting, lock, temporary table or named statement. Poolers don't matter.
//! 14. **Followers read, they don't write.** A candidate bids only when rule 10 allows it, and an
//!     [observer](crate::ConfigBuilder::observer) never does.
//! 15. **Fences survive a fail-over that lost writes.** Their high bits follow the server's timeline, which every
//!     promotion raises; a bid is refused on another timeline than that of the observation it rests on.
//! 16. **What a statement needs, it brings**: a durable commit and a bound for its waits for locks. A table of the wrong
//!     shape is refused by name.
//! 17. **The clock is read after the lock**, once for a whole statement, so that a lease is never granted in the past.
//! 18. **Step down first, talk later.** Nothing happens between "this term is over" and everybody seeing it.
