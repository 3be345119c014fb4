//! A fleet on virtual time: the real election machine and the real term over a store that does what databases
//! do, with the faults that break elections. Deterministic: a schedule is replayed by its script or its seed.

mod random;
mod schedules;
mod world;
