//! Values out of bytes. Bytes that are missing are zero, so that every input means something.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number below `of`.
    pub(super) fn choose(&mut self, of: u8) -> u8 {
        self.byte() % of.max(1)
    }

    /// Small, somewhere, or near the end of the range, by the first byte.
    pub(super) fn u64(&mut self) -> u64 {
        let kind = self.byte();
        let bytes = usize::from(kind % 8) + 1;
        let value = (0..bytes).fold(0u64, |sum, _| sum << 8 | u64::from(self.byte()));
        if kind >= 0xe0 { u64::MAX - value } else { value }
    }

    pub(super) fn i64(&mut self) -> i64 {
        self.u64() as i64
    }

    /// In some unit between nanoseconds and seconds.
    pub(super) fn duration(&mut self) -> Duration {
        let unit = self.choose(5);
        let count = self.u64();
        match unit {
            0 => Duration::from_nanos(count),
            1 => Duration::from_micros(count),
            2 => Duration::from_millis(count),
            3 => Duration::from_secs(count),
            _ => Duration::new(count, 999_999_999),
        }
    }

    /// So many milliseconds as two bytes can say.
    pub(super) fn millis(&mut self) -> u64 {
        u64::from(self.byte()) << 8 | u64::from(self.byte())
    }

    /// Text of the length that the first byte says, times `scale`.
    pub(super) fn text(&mut self, scale: usize) -> String {
        let length = usize::from(self.byte()) * scale;
        let (text, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }
}
