//! Where the faults of a schedule come from: a seed, or bytes that somebody else chose.

use std::ops::{Range, RangeInclusive};

use fastrand::Rng;

/// Draws numbers.
#[derive(Debug)]
pub(super) enum Dice {
    Random(Rng),
    /// These bytes, then nothing but the least of everything.
    Given(std::vec::IntoIter<u8>),
}

impl Dice {
    pub(super) fn seeded(seed: u64) -> Dice {
        Dice::Random(Rng::with_seed(seed))
    }

    pub(super) fn given(bytes: &[u8]) -> Dice {
        Dice::Given(Vec::from(bytes).into_iter())
    }

    pub(super) fn is_used_up(&self) -> bool {
        matches!(self, Dice::Given(bytes) if bytes.len() == 0)
    }

    pub(super) fn u64(&mut self, range: RangeInclusive<u64>) -> u64 {
        let Dice::Given(bytes) = self else {
            let Dice::Random(rng) = self else { return *range.start() };
            return rng.u64(range);
        };
        // As few bytes as the range needs, three at most, scaled where that is too coarse.
        let span = u128::from(range.end() - range.start()) + 1;
        let count = if span <= 1 << 8 { 1 } else { 2 + usize::from(span > 1 << 16) };
        let drawn = (0..count).fold(0u128, |sum, _| sum << 8 | u128::from(bytes.next().unwrap_or(0)));
        let whole = 1u128 << (8 * count);
        let offset = if span <= whole { drawn % span } else { drawn * span / whole };
        range.start() + offset as u64
    }

    pub(super) fn i64(&mut self, range: RangeInclusive<i64>) -> i64 {
        match self {
            Dice::Random(rng) => rng.i64(range),
            Dice::Given(_) => {
                let span = range.end().abs_diff(*range.start());
                range.start().saturating_add_unsigned(self.u64(0..=span))
            }
        }
    }

    pub(super) fn u32(&mut self, range: Range<u32>) -> u32 {
        match self {
            Dice::Random(rng) => rng.u32(range),
            Dice::Given(_) => self.u64(range.start.into()..=u64::from(range.end.saturating_sub(1))) as u32,
        }
    }

    pub(super) fn u8(&mut self, range: Range<u8>) -> u8 {
        match self {
            Dice::Random(rng) => rng.u8(range),
            Dice::Given(_) => self.u64(range.start.into()..=u64::from(range.end.saturating_sub(1))) as u8,
        }
    }

    pub(super) fn usize(&mut self, range: Range<usize>) -> usize {
        match self {
            Dice::Random(rng) => rng.usize(range),
            Dice::Given(_) => self.u64(range.start as u64..=range.end.saturating_sub(1) as u64) as usize,
        }
    }

    pub(super) fn bool(&mut self) -> bool {
        match self {
            Dice::Random(rng) => rng.bool(),
            Dice::Given(_) => self.u64(0..=1) == 1,
        }
    }
}

#[test]
fn bytes_reach_the_whole_range() {
    let mut dice = Dice::given(&[0, 255, 3, 0xff, 0xff, 0xff, 1, 0]);
    assert_eq!((dice.u8(0..4), dice.u64(0..=255), dice.u32(2..4)), (0, 255, 3));
    assert_eq!(dice.i64(-1_000_000_000..=1_000_000_000), 999_999_881);
    assert!(dice.bool() && !dice.is_used_up());
    assert_eq!((dice.usize(7..9), dice.is_used_up()), (7, true));
    assert_eq!((dice.usize(7..9), dice.i64(-5..=5)), (7, -5));
}
