//! Why there are never two leaders: the argument, step by step, for a reader who wants to check it.
//!
//! The rules that it rests on are listed in [`rules`](super::rules), and are called by their numbers here. What the
//! argument does not cover is listed in [`limits`](super::limits).
//!
//! # The promise
//!
//! **At most one participant of an election considers itself leader at any instant.** *Considers itself leader* means:
//! a call of [`check`](crate::LeaderGuard::check), [`is_leader`](crate::Elector::is_leader) or
//! [`fence`](crate::Elector::fence) that says so. Such a call begins and ends at some instants; at some instant in
//! between the term was live.
//!
//! **Fences strictly increase** over the whole life of an election: a later term has a higher one.
//!
//! There is no third promise. In particular none that somebody leads: where the database is away nobody does.
//!
//! # What may happen, and what is assumed
//!
//! Requests and replies may be delayed for any time, lost, or carried out long after their sender has given up.
//! Processes may stop at any instruction for any time, and end. Machines may sleep. Wall clocks may show anything, and
//! so may the database's clock: it may step at any moment, by any amount, in either direction. The row may be set back,
//! deleted or changed by hand. A standby may be promoted that lacks acknowledged writes.
//!
//! Assumed is:
//!
//! - **A1.** The database carries out the writes to one row one after the other, each wholly or not at all, and each
//!   judges by the row as the one before left it. What it has acknowledged it keeps, except in the events above.
//! - **A2.** Local clocks go forward, also while the machine sleeps, and their rates differ by at most 2.5 %.
//! - **A3.** Nobody but participants, with this crate's statements, grants leases in the table.
//! - **A4.** A participant's very first answer does not follow a forward step of the database's clock that happened
//!   since the leader's last renewal. [`ClockTrust::Strict`](crate::ClockTrust::Strict) does without this one.
//!
//! # The words of the argument
//!
//! A *version* is one state of the row, with the mark that changes at every write; so no two writes leave the same
//! version. Its *length* is `expires_at - renewed_at`, two columns written in one statement from one reading of one
//! clock, so that steps of the clock do not show in it. A term's *last answered write* is the acquire or the renewal of
//! it whose answer reached its leader last. The *margin* is the `safety_margin`; the configuration keeps it at a
//! twentieth of the lease or more.
//!
//! # Step 1: for how long a leader believes
//!
//! Let the last answered write have been sent at `s` on the leader's clock, for a lease of length `L`. Its deadline is
//! `s + min(ttl, L) - margin` (rule 2), hence `s + L - margin` at the latest, and no call says "leader" once the
//! leader's clock has reached it:
//!
//! - every call reads the clock and compares (rule 4), so it does not matter whether any thread of ours has run;
//! - the clock counts sleep (rule 3), so a process that wakes reads a time beyond the deadline;
//! - whoever finds the deadline passed ends the term by compare-and-swap, and a renewal moves the deadline by
//!   compare-and-swap from the one it saw, so a late reply finds the term ended (rule 5).
//!
//! The reply may have taken long. That only makes what is left of the term shorter, since `s` is before the request.
//!
//! # Step 2: what a take-over finds
//!
//! An acquire succeeds only where the row is still exactly the version that the candidate observed, on the timeline on
//! which it observed it (rule 8). So between the write that left this version, call it `v`, and the acquire nothing was
//! written. After the acquire, renewals of every earlier term match nothing, since holder and fence are other ones
//! (rule 9). So **every answered write of any earlier term was carried out before the candidate first received an
//! answer that showed `v`**, at `r` on its clock: it was carried out no later than `v` was written, and `v` was written
//! before it was read.
//!
//! And each of them was *sent* before it was carried out. So for every earlier leader, `s` lies before `r` in time.
//!
//! # Step 3: the candidate waits
//!
//! Whose term may still be live? That of the holder of `v`: its last answered write was sent before `r`, for the length
//! of `v`, since a term asks for the same length every time. An earlier term than that was taken over by an acquire
//! itself, and was over by then, by this same argument. (The first term of all has none before it.)
//!
//! The candidate takes over at `r + L - credit` on its own clock, at the earliest, where `L` is the length of `v` and
//! the credit at most `L / 40` (rule 10). The leader's term ends at `s + L - margin` on its clock, where the margin is
//! at least `L / 20`. Since `s` is before `r`, the leader has stopped first if
//!
//! ```text
//! 0.95 L / (rate of the leader's clock)  <=  0.975 L / (rate of the candidate's clock)
//! ```
//!
//! which holds as long as the candidate's clock runs at most 2.6 % faster than the leader's. That is A2. The database's
//! clock has no part in this but for the credit, and the credit is bounded, whatever that clock says.
//!
//! The candidate's own term begins after that: at the answer to its acquire, which was sent after the wait. A
//! [takeover delay](crate::ConfigBuilder::takeover_delay) comes on top of the wait, and an
//! [observer](crate::ConfigBuilder::observer) acquires nothing.
//!
//! # Step 4: where the candidate need not wait
//!
//! - **A released version**, with a fence that is not below the highest seen. A release is sent after the term was
//!   ended for everybody (rule 18), and names holder and fence. So the term is over, and no late renewal brings it
//!   back: renewals ask for a lease that has not expired, and a release leaves it expired at the epoch, which no clock
//!   undoes.
//! - **Its own version.** The only term that it can stand for is the candidate's own, which is sealed. Only as long as
//!   nothing newer was seen: after that, an own row is an old record like any other.
//! - **The very first answer**, where the database's clock is believed, and the wait is what remains of the lease by
//!   that clock. That is A4. `Strict` waits for `L` there, too.
//!
//! # Step 5: where the record goes back
//!
//! A deleted row, a restored backup, a promoted standby that lacks writes: then versions existed that the candidate may
//! never have seen, and a term of one of them may be live. It is noticed as a fence lower than the highest seen, the
//! highest in other hands, a row that is gone, or a timeline that is another one. From the answer that shows it, the
//! candidate waits for the longest lease that it has seen or would ask for. Any lost write was carried out on what is
//! lost, hence before that answer, so step 3 applies with that length. Own rows are no exception (rule 15): a
//! participant may find its own row again beneath a lost term of somebody else's.
//!
//! The acquire may itself be the first to reach the promoted server, and find there exactly the version that it names.
//! So it names the timeline as well, and is refused.
//!
//! Two things can't be noticed this way, and are [limits](super::limits): a row that went back under a participant that
//! had not seen the lost term, and an old primary that goes on answering its leader.
//!
//! # Step 6: statements that land late
//!
//! A statement that its sender has given up may be carried out at any time. An acquire names a version: after any other
//! write it changes nothing. If it is the next write after all, the lease is granted to somebody who may not want it
//! any more. Its reply is late or lost, so that its deadline (from the send) has passed or is never known, and nobody
//! leads by it; the others see a new version and wait for its length. That costs time, not safety. A renewal that lands
//! late needs holder, fence and an unexpired lease, read after the wait for the row (rule 17): it makes the row live
//! longer, not the term. A release does nothing unless holder and fence are still the stored ones.
//!
//! # Step 7: fences
//!
//! An acquire writes `max(stored, above) + 1`, where `above` is the highest fence that its participant has seen or was
//! told, and it is atomic. So on one history they increase by one. Where the history lost terms, the promotion has
//! raised the server's timeline, and the high bits of a fence follow it (rule 15): the new fence is higher than any of
//! the lost ones, though nobody remembers those. A participant that remembers a lost fence goes above it in any case.
//!
//! # What would break it, rule by rule
//!
//! Each line is a rule, what goes wrong without it, and which tests break the rule on purpose and see that.
//!
//! | rule | without it | broken on purpose in |
//! | --- | --- | --- |
//! | 2, anchor | a slow reply makes the leader believe in a lease that is over | the model, the simulation |
//! | 2, margin | clocks that differ by a little lead together | the model, the simulation |
//! | 3 | a machine that slept goes on leading | nowhere; shown by scenarios in which the boot clock leaps and the other clocks do not |
//! | 4, 6 | a flag stays true until a blocked thread is scheduled | loom, the simulation |
//! | 5 | a late reply revives a term that somebody was told is over | loom, the model, the simulation |
//! | 8 | two candidates that saw the lease expire both win; a fence is given twice | the model, the simulation, the acceptance suite |
//! | 9 | a stale leader prolongs or frees its successor's lease | the acceptance suite |
//! | 10 | one step of the database's clock makes two leaders | the model, the simulation |
//! | 11 | a restarted process continues the term of its former self, or of its twin | the model, the simulation |
//! | 15 | a promoted server gives out a fence again; its own old row makes a participant lead beside the lost leader | the model, the simulation |
//! | 17 | a lease is granted that is over already | the acceptance suite |
//!
//! # Drafts that fell
//!
//! Rule 10 looks more cautious than it need be. These were its predecessors, each refuted by a schedule that is kept as
//! a test.
//!
//! 1. *The age of a version is believed if it is plausible.* The leader renews and is cut off; the database's clock
//!    leaps two seconds; a candidate that polls every three seconds finds the age plausible, and takes over too soon.
//! 2. *The database's clock and one's own are compared over the gap between two answers.* Two opposite steps within the
//!    gap cancel.
//! 3. *A record that went back is waited out for the length that it had.* The lost version was newer than any that the
//!    candidate had seen.
//! 4. *Own rows need no wait.* After a fail-over the row says that it is mine, and somebody else leads by what was
//!    lost.
//! 5. *An acquire that names a version may also create the row where there is none.* It was under way while somebody
//!    took over and the row was deleted.
//! 6. *The timeline is looked at when observing.* The acquire was the first to reach the promoted server.
//! 7. *A version is holder, fence and times.* The clock stepped back by as much as passed until the next renewal, which
//!    wrote the same times again. Hence the mark.
//! 8. *Released is what has expired.* Only the clock told the two apart. Hence the epoch.
//! 9. *The wait is what remains by the database's clock.* A step back of an hour made it an hour. Hence the length.
//! 10. *A timeline has changed when it is greater.* After `pg_upgrade` it begins again at 1.
//!
//! # What each layer of the tests shows
//!
//! An argument in prose may be wrong, and code may not be what it says. So:
//!
//! | layer | shows | does not show |
//! | --- | --- | --- |
//! | `model` | that the *rules* hold in every order of events of small worlds, and that each draft above does not | anything about the code |
//! | `unit` | that the *code's* decisions hold in every order of events of small worlds, and in the scripts of each draft | longer histories |
//! | `simulation` | the same code in long random histories, with clocks, cuts, freezes, restores and fail-overs | threads; a real database |
//! | `loom` | that the term holds in every order of the threads around it | the rest of the engine |
//! | `acceptance` | that a store's statements do what the rules ask of them, one by one, in races and when they land late | time-outs of the driver |
//! | `elector`, `postgres`, `sqlite`, `processes` | threads, real servers, poolers, broken paths, killed and frozen processes | rare orders of events |
//! | `chaos`, `soak` | whole fleets under faults, with what the processes were told laid over what the row says | what is not in their list of faults |
//!
//! In all of them there are controls: something is broken on purpose, and the layer must see it. The simulation and the
//! soak also refuse to count a run in which too little happened.
//!
//! You can run the simulation yourself, with any seeds: see the example `simulate`.
