//! What the test weaves mutants into: each kind of change once, and what it comes to.

struct Pair {
    left: u32,
    right: u32,
}

impl Default for Pair {
    fn default() -> Self {
        Self { left: 70, right: 80 }
    }
}

fn value() -> u32 {
    // A body whose first words hold a mutant of their own.
    !7 % 10
}

fn unit(out: &mut Vec<u32>) {
    out.push(1);
}

fn sum(a: u32, b: u32) -> bool {
    a + b == 5 && b < 4
}

fn all(a: bool, b: bool, c: bool) -> bool {
    a && b && c
}

fn count() -> u32 {
    let mut count = 10;
    count += 2;
    count
}

fn arms(number: u32) -> u32 {
    match number {
        1 => 11,
        2 if number > 5 => 12,
        _ => 13,
    }
}

fn pair() -> Pair {
    Pair { left: 7, ..Pair::default() }
}

fn chain(given: Option<u32>) -> u32 {
    if given.is_some()
        && let Some(given) = given
    {
        given
    } else {
        0
    }
}

fn words() -> impl Iterator<Item = u32> {
    [1, 2].into_iter()
}

/// Everything, in one line.
pub fn report() -> String {
    let mut out = Vec::new();
    unit(&mut out);
    let Pair { left, right } = pair();
    let (sums, arms) = ([sum(2, 3), sum(4, 4)], [arms(1), arms(2), arms(3)]);
    let sums = [&sums[..], &[all(true, true, false)]].concat();
    format!("{} {out:?} {sums:?} {} {arms:?} {left} {right} {} {}", value(), count(), chain(Some(3)), words().count())
}
