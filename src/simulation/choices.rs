//! A generator that gives every combination of answers, so that what asks it is run in every way there is.

/// Answers to questions, all combinations one after the other.
#[derive(Debug, Default)]
pub(super) struct Choices {
    /// What was chosen, and out of how many.
    path: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    /// A number below `of`.
    pub(super) fn choose(&mut self, of: usize) -> usize {
        if self.at == self.path.len() {
            self.path.push((0, of));
        }
        let (chosen, before) = self.path[self.at];
        assert_eq!(of, before, "the same choices led to another question");
        self.at += 1;
        chosen
    }

    /// The same combination from its beginning.
    pub(super) fn again(&mut self) {
        self.at = 0;
    }

    /// How many answers were not the first one.
    pub(super) fn deviations(&self) -> usize {
        self.path.iter().filter(|(chosen, _)| *chosen > 0).count()
    }

    /// On to the next combination; `false`: that was the last.
    pub(super) fn next(&mut self) -> bool {
        self.again();
        while let Some((chosen, of)) = self.path.pop() {
            if chosen + 1 < of {
                self.path.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

#[test]
fn choices_are_all_combinations() {
    let (mut choices, mut seen) = (Choices::default(), Vec::new());
    loop {
        let first = choices.choose(2);
        let second = if first == 0 { choices.choose(3) } else { 9 };
        seen.push((first, second));
        if !choices.next() {
            break;
        }
    }
    assert_eq!(seen, [(0, 0), (0, 1), (0, 2), (1, 9)]);
}
