//! Rounds that interleave what is compared, and medians of them.
//!
//! A round runs every entrant once, for a batch of a few dozen microseconds, one right after the other; so whatever the
//! machine does to one it does to the others. Of each pair compared the ratio is taken round by round, and the median
//! of those is the answer.

use std::time::Instant;

/// Something that can do its operation `n` times, and what follows that is not measured.
struct Entrant<'a> {
    name: &'static str,
    batch: u64,
    body: Box<dyn FnMut(u64) + 'a>,
    settle: Box<dyn FnMut() + 'a>,
}

/// What is compared.
#[derive(Default)]
pub struct Contest<'a> {
    entrants: Vec<Entrant<'a>>,
}

impl std::fmt::Debug for Contest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.entrants.iter().map(|entrant| entrant.name)).finish()
    }
}

/// What came out: for each entrant, the nanoseconds of one operation in each round.
#[derive(Clone, Debug)]
pub struct Outcome {
    rounds: Vec<(&'static str, Vec<f64>)>,
}

impl<'a> Contest<'a> {
    /// Nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one that does its operation `batch` times a round.
    #[must_use]
    pub fn entrant(self, name: &'static str, batch: u64, body: impl FnMut(u64) + 'a) -> Self {
        self.settled(name, batch, body, || {})
    }

    /// As `entrant`; after each batch, `settle` runs unmeasured.
    #[must_use]
    pub fn settled(
        mut self,
        name: &'static str,
        batch: u64,
        body: impl FnMut(u64) + 'a,
        settle: impl FnMut() + 'a,
    ) -> Self {
        self.entrants.push(Entrant { name, batch, body: Box::new(body), settle: Box::new(settle) });
        self
    }

    /// Runs `rounds` rounds, after one that does not count.
    pub fn run(mut self, rounds: usize) -> Outcome {
        let rows = self.entrants.iter().map(|entrant| (entrant.name, Vec::with_capacity(rounds)));
        let mut outcome = Outcome { rounds: rows.collect() };
        for round in 0..=rounds {
            for (entrant, (_, times)) in self.entrants.iter_mut().zip(&mut outcome.rounds) {
                let start = Instant::now();
                (entrant.body)(entrant.batch);
                let time = start.elapsed().as_nanos() as f64 / entrant.batch as f64;
                (entrant.settle)();
                if round > 0 {
                    times.push(time);
                }
            }
        }
        outcome
    }
}

impl Outcome {
    /// Rounds that were measured elsewhere: a row each.
    pub fn from_columns<const N: usize>(names: [&'static str; N], rows: &[[f64; N]]) -> Self {
        let column = |index: usize| rows.iter().map(|row| row[index]).collect();
        Self { rounds: names.into_iter().enumerate().map(|(index, name)| (name, column(index))).collect() }
    }

    /// The rounds of one entrant.
    ///
    /// # Panics
    /// When there is none of that name.
    pub fn of(&self, name: &str) -> &[f64] {
        let found = self.rounds.iter().find(|(entrant, _)| *entrant == name);
        &found.unwrap_or_else(|| panic!("no entrant is called {name}")).1
    }

    /// The ratio of two entrants: the median over the rounds.
    pub fn over(&self, name: &str, base: &str) -> f64 {
        median(self.of(name).iter().zip(self.of(base)).map(|(whole, base)| whole / base).collect())
    }

    /// The median of one entrant, in nanoseconds.
    pub fn median(&self, name: &str) -> f64 {
        median(self.of(name).to_vec())
    }

    /// What `name` takes beyond `base`, in nanoseconds: the median over the rounds.
    pub fn net(&self, name: &str, base: &str) -> f64 {
        median(self.of(name).iter().zip(self.of(base)).map(|(whole, base)| whole - base).collect())
    }

    /// All medians.
    pub fn medians(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.rounds.iter().map(|(name, times)| (*name, median(times.clone())))
    }

    /// The quartiles of one entrant, in nanoseconds.
    pub fn quartiles(&self, name: &str) -> [f64; 3] {
        let mut times = self.of(name).to_vec();
        times.sort_by(f64::total_cmp);
        [1, 2, 3].map(|quarter| times[(times.len() - 1) * quarter / 4])
    }
}

/// The middle value; of an even number the lower of the two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

/// What one relaxed load of one of many words takes, in nanoseconds, by what one entrant takes `net` of another: the slope
/// from 16 to 64 of them. From 1 to 16 the loop's beginning and end decide, and where the compiler put them.
pub fn load(net: impl Fn(&str, &str) -> f64) -> f64 {
    net("64 loads", "16 loads") / 48.0
}
