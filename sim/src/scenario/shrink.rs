//! The smallest schedule that still fails.
//!
//! A schedule is a list of choices, and choosing 0 lets the first actor that can move go on: the program's own order.
//! So smaller means fewer departures from that order, then shorter, then smaller choices. What comes out is minimal in
//! this sense: no choice of it can be made 0, left out or made smaller by one. Each try is a run; there are at most
//! [`TRIES_MAX`], after which the smallest so far has to do.

/// Makes `choices` smaller for as long as `fails` says that the same fault shows: it gives the choices that the run
/// really made.
pub(crate) fn shrink(choices: &[u16], mut fails: impl FnMut(&[u16]) -> Option<Vec<u16>>) -> Vec<u16> {
    let mut tries = 0;
    let mut best = trimmed(choices.to_vec());
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
    while span > 1 {
        zero_spans(span, &mut best, &mut try_it);
        span /= 2;
    }
    while smaller_somewhere(&mut best, &mut try_it) {}
    best
}

fn zero_spans(span: usize, best: &mut Vec<u16>, try_it: &mut impl FnMut(&[u16], &mut Vec<u16>) -> bool) {
    let mut start = 0;
    while start < best.len() {
        let end = (start + span).min(best.len());
        if best[start..end].iter().any(|choice| *choice != 0) {
            let mut zeroed = best.clone();
            zeroed[start..end].fill(0);
            try_it(&zeroed, best);
        }
        start += span;
    }
}

/// Tries all that can be done to one choice; whether anything helped.
fn smaller_somewhere(best: &mut Vec<u16>, try_it: &mut impl FnMut(&[u16], &mut Vec<u16>) -> bool) -> bool {
    let (mut index, mut helped) = (0, false);
    while index < best.len() {
        let choice = best[index];
        let mut candidate = best.clone();
        candidate.remove(index);
        let mut did = try_it(&candidate, best);
        for less in [0, choice.saturating_sub(1)] {
            if !did && choice > less {
                let mut candidate = best.clone();
                candidate[index] = less;
                did = try_it(&candidate, best);
            }
        }
        helped |= did;
        index += usize::from(!did);
    }
    helped
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

/// Departures from the program's own order, the length, and how far the choices go: what a reader has to follow.
fn weight(choices: &[u16]) -> (usize, usize, u64) {
    let departures = choices.iter().filter(|choice| **choice != 0).count();
    (departures, trimmed_len(choices), choices.iter().map(|choice| u64::from(*choice)).sum())
}

fn trimmed_len(choices: &[u16]) -> usize {
    choices.iter().rposition(|choice| *choice != 0).map_or(0, |last| last + 1)
}

/// Zeros at the end say nothing.
fn trimmed(mut choices: Vec<u16>) -> Vec<u16> {
    choices.truncate(trimmed_len(&choices));
    choices
}

const TRIES_MAX: u32 = 2_000;

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

    #[test]
    fn choices_that_need_not_be_as_far_come_nearer() {
        let small = shrink(&[4, 0, 9], |choices| {
            let made = made(choices);
            (made[0] >= 2 && made[2] >= 3).then_some(made)
        });
        assert_eq!(small, [2, 0, 3]);
    }

    /// The first choice can only go once the second has: one pass from front to back is not enough.
    #[test]
    fn nothing_that_one_change_makes_smaller_is_left() {
        let fails = |choices: &[u16]| {
            let made = made(choices);
            let first_matters = made[1] != 0;
            (made[5] == 1 && (!first_matters || made[0] == 1)).then_some(made)
        };
        let small = shrink(&[1, 1, 1, 0, 1, 1], fails);
        assert_eq!(small, [0, 0, 0, 0, 0, 1]);
        for index in 0..small.len() {
            let mut less = small.clone();
            less.remove(index);
            assert!(fails(&less).is_none() || weight(&less) >= weight(&small));
        }
    }
}
