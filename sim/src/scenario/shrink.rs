//! The smallest schedule that still fails.
//!
//! A schedule is a list of choices, and choosing 0 lets the first actor that can move go on: the program's own order.
//! So smaller means shorter, and then more zeros. Each try is a run; there are at most [`TRIES_MAX`].

/// Makes `choices` smaller for as long as `fails` says that the same fault shows: it gives the choices that the run
/// really made.
pub(crate) fn shrink(choices: &[u16], mut fails: impl FnMut(&[u16]) -> Option<Vec<u16>>) -> Vec<u16> {
    let mut tries = 0;
    let mut best = choices.to_vec();
    let mut try_it = |candidate: &[u16], best: &mut Vec<u16>| {
        if tries >= TRIES_MAX {
            return false;
        }
        tries += 1;
        match fails(candidate) {
            Some(taken) if weight(&taken) < weight(best) => {
                *best = trimmed(taken);
                true
            }
            _ => false,
        }
    };
    cut_tail(&mut best, &mut try_it);
    let mut span = best.len().next_power_of_two();
    while span > 0 {
        let mut start = 0;
        while start < best.len() {
            let end = (start + span).min(best.len());
            if best[start..end].iter().any(|choice| *choice != 0) {
                let mut zeroed = best.clone();
                zeroed[start..end].fill(0);
                if !try_it(&zeroed, &mut best) && span == 1 {
                    let mut without = best.clone();
                    without.remove(start);
                    try_it(&without, &mut best);
                }
            }
            start += span;
        }
        span /= 2;
    }
    trimmed(best)
}

/// Halves the list from behind while that still fails.
fn cut_tail(best: &mut Vec<u16>, try_it: &mut impl FnMut(&[u16], &mut Vec<u16>) -> bool) {
    let mut keep = best.len() / 2;
    let mut failed_at = 0;
    while keep > failed_at {
        let cut = best[..keep.min(best.len())].to_vec();
        if try_it(&cut, best) {
            keep = best.len() / 2;
        } else {
            failed_at = keep;
            keep = usize::midpoint(keep, best.len());
        }
        if best.len() <= failed_at + 1 {
            break;
        }
    }
}

/// Departures from the program's own order, and then the length: what a reader has to follow.
fn weight(choices: &[u16]) -> (usize, usize) {
    (choices.iter().filter(|choice| **choice != 0).count(), trimmed_len(choices))
}

fn trimmed_len(choices: &[u16]) -> usize {
    choices.iter().rposition(|choice| *choice != 0).map_or(0, |last| last + 1)
}

/// Zeros at the end say nothing.
fn trimmed(mut choices: Vec<u16>) -> Vec<u16> {
    choices.truncate(trimmed_len(&choices));
    choices
}

const TRIES_MAX: u32 = 600;

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs are as long as twenty choices, whatever is asked.
    fn made(choices: &[u16]) -> Vec<u16> {
        let mut made = choices.to_vec();
        made.resize(20, 0);
        made
    }

    #[test]
    fn only_the_choices_that_matter_stay() {
        let long: Vec<u16> = (0..20).map(|index| index % 3).collect();
        let small = shrink(&long, |choices| {
            let made = made(choices);
            (made[4] == 1 && made[7] == 1).then_some(made)
        });
        assert_eq!(small, [0, 0, 0, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn a_fault_of_every_schedule_needs_no_choice() {
        assert!(shrink(&[2, 1, 2, 1], |choices| Some(made(choices))).is_empty());
    }

    #[test]
    fn what_cannot_shrink_stays() {
        let only = [3, 3, 3];
        assert_eq!(shrink(&only, |choices| (choices == only).then(|| only.to_vec())), only);
    }
}
