//! Which of the things that may happen next does: seeded policies, and the walk over every order.
//!
//! An [`Actor`] is a host thread or a stream of the device. At each *choice point* a [`Schedule`] is shown the actors
//! that can move and names one. A choice among one is none: it draws no number and is not part of a replay key.
//!
//! | policy | who runs | finds |
//! |---|---|---|
//! | [`Policy::Uniform`] | anybody, evenly | shallow races |
//! | [`Policy::Priorities`] | the actor of the highest random priority; now and then it drops to the lowest (PCT) | orders that need few, well placed switches |
//! | [`Policy::LazyDevice`] | hosts, the device only now and then | work that is still pending when it is let go |
//! | [`Policy::EagerDevice`] | the device, hosts only now and then | state that is gone sooner than expected |
//!
//! Random numbers come from xoshiro256++, whose output for a seed is fixed; bounds are taken from the high bits. So a
//! seed means the same on every machine.

use super::footprint::Footprint;
use super::reduced::Reduced;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Something that can move: a host thread, or a stream of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Actor {
    /// A host thread, by its number in the run.
    Host(u32),
    /// The device, at one of its streams.
    Device(u64),
}

/// How a seed picks. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Anybody, evenly.
    Uniform,
    /// Random priorities with change points (PCT).
    Priorities,
    /// The device as late as possible.
    LazyDevice,
    /// The device as early as possible.
    EagerDevice,
}

impl Policy {
    /// The policy's name, as reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Priorities => "priorities",
            Self::LazyDevice => "lazy device",
            Self::EagerDevice => "eager device",
        }
    }

    /// The policy that a seed means when none is asked for, so that a sweep over seeds mixes them.
    pub fn of_seed(seed: u64) -> Self {
        match seed % 4 {
            0 => Self::Uniform,
            1 => Self::Priorities,
            2 => Self::LazyDevice,
            _ => Self::EagerDevice,
        }
    }
}

/// What decides at choice points.
#[derive(Debug)]
pub(crate) enum Schedule {
    /// Always the first: the order in which things were started.
    First,
    /// Random numbers.
    Seeded(Seeded),
    /// Random numbers, with what they chose kept, so that the run can be made smaller.
    Noted(Seeded, Vec<u16>),
    /// One walk of a search over all orders.
    Path(Path),
    /// The same, but for orders that come to the same.
    Reduced(Box<Reduced>),
}

impl Schedule {
    /// The index of the actor that moves, of one or several; `done` is what was touched since the last choice. `None`:
    /// whatever comes has been walked.
    pub(crate) fn choose_after(&mut self, actors: &[Actor], done: Footprint) -> Option<usize> {
        match self {
            Self::Reduced(reduced) => reduced.choose(actors, done),
            _ => Some(self.choose(actors)),
        }
    }

    /// A thread moves that was not chosen.
    pub(crate) fn forced(&mut self, done: Footprint) {
        if let Self::Reduced(reduced) = self {
            reduced.forced(done);
        }
    }

    /// The index of the actor that moves; `actors` is not empty.
    pub(crate) fn choose(&mut self, actors: &[Actor]) -> usize {
        if actors.len() <= 1 {
            return 0;
        }
        match self {
            Self::First => 0,
            Self::Seeded(seeded) => seeded.choose(actors),
            Self::Noted(seeded, choices) => {
                let index = seeded.choose(actors);
                choices.push(u16::try_from(index).unwrap_or(u16::MAX));
                index
            }
            Self::Path(path) => path.choose(actors.len()),
            // With everything touched nobody sleeps.
            Self::Reduced(reduced) => reduced.choose(actors, Footprint::ALL).unwrap_or(0),
        }
    }
}

/// Choices drawn from one number.
#[derive(Debug)]
pub(crate) struct Seeded {
    random: Xoshiro256PlusPlus,
    policy: Policy,
    /// Priorities given so far, for [`Policy::Priorities`]; bounded by the actors alive (see `forget`).
    priorities: Vec<(Actor, u64)>,
    /// One change point in this many choices, on average.
    change_every: u64,
    /// The next lowest priority: counts down, so that each drop is below all before it.
    lowest: u64,
}

impl Seeded {
    pub(crate) fn new(seed: u64, policy: Option<Policy>) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let change_every = 4 << (random.next_u64() >> 62);
        Self {
            random,
            policy: policy.unwrap_or(Policy::of_seed(seed)),
            priorities: Vec::new(),
            change_every,
            lowest: 1 << 32,
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy
    }

    fn choose(&mut self, actors: &[Actor]) -> usize {
        match self.policy {
            Policy::Uniform => self.below(actors.len()),
            Policy::Priorities => self.by_priority(actors),
            Policy::LazyDevice => self.prefer(actors, |actor| matches!(actor, Actor::Host(_))),
            Policy::EagerDevice => self.prefer(actors, |actor| matches!(actor, Actor::Device(_))),
        }
    }

    /// A number below `bound`, from the high bits.
    fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.random.next_u64()) * bound as u128;
        (wide >> 64) as usize
    }

    /// Once in `n`.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of the preferred, evenly, except once in 16 anybody.
    fn prefer(&mut self, actors: &[Actor], preferred: impl Fn(&Actor) -> bool) -> usize {
        let count = actors.iter().filter(|actor| preferred(actor)).count();
        if count == 0 || self.once_in(16) {
            return self.below(actors.len());
        }
        let nth = self.below(count);
        let mut matching = actors.iter().enumerate().filter(|(_, actor)| preferred(actor));
        matching.nth(nth).map_or(0, |(index, _)| index)
    }

    fn by_priority(&mut self, actors: &[Actor]) -> usize {
        let mut best = (0, 0);
        for (index, actor) in actors.iter().enumerate() {
            let priority = self.priority(*actor);
            if priority >= best.1 {
                best = (index, priority);
            }
        }
        if self.once_in(self.change_every as usize) {
            self.drop_to_lowest(actors[best.0]);
        }
        best.0
    }

    fn priority(&mut self, actor: Actor) -> u64 {
        if let Some((_, priority)) = self.priorities.iter().find(|(known, _)| *known == actor) {
            return *priority;
        }
        if self.priorities.len() >= PRIORITIES_MAX {
            self.priorities.clear();
        }
        // Above every dropped one, which lie below 2^32.
        let priority = (self.random.next_u64() >> 1) | (1 << 33);
        self.priorities.push((actor, priority));
        priority
    }

    fn drop_to_lowest(&mut self, actor: Actor) {
        self.lowest = self.lowest.saturating_sub(1);
        let lowest = self.lowest;
        if let Some((_, priority)) = self.priorities.iter_mut().find(|(known, _)| *known == actor) {
            *priority = lowest;
        }
    }
}

/// One walk of the search over all orders: the choices made so far, each with how many there were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    choices: Vec<(u16, u16)>,
    depth: usize,
    /// The program did something else than last time at the same choices: it depends on more than the schedule.
    diverged: bool,
}

impl Path {
    /// The walk that a replay key names (`0.2.1`), or nothing where it is none.
    pub(crate) fn parse(key: &str) -> Option<Self> {
        let numbers = key.split('.').filter(|part| !part.is_empty()).map(str::parse);
        let choices = numbers.map(|number| number.map(|index: u16| (index, 0)));
        Some(Self { choices: choices.collect::<Result<_, _>>().ok()?, ..Self::default() })
    }

    /// The walk that makes these choices, and then always the first.
    pub(crate) fn from_choices(choices: &[u16]) -> Self {
        Self { choices: choices.iter().map(|index| (*index, 0)).collect(), ..Self::default() }
    }

    /// The choices made so far.
    pub(crate) fn taken(&self) -> Vec<u16> {
        self.choices.iter().take(self.depth).map(|(index, _)| *index).collect()
    }

    /// The walk as a replay key.
    pub(crate) fn key(&self) -> String {
        let numbers: Vec<_> = self.choices.iter().take(self.depth).map(|(index, _)| index.to_string()).collect();
        numbers.join(".")
    }

    pub(crate) fn diverged(&self) -> bool {
        self.diverged
    }

    fn choose(&mut self, count: usize) -> usize {
        let of = u16::try_from(count).unwrap_or(u16::MAX);
        let depth = self.depth;
        self.depth += 1;
        let Some((index, known)) = self.choices.get_mut(depth) else {
            self.choices.push((0, of));
            return 0;
        };
        self.diverged |= *known != 0 && *known != of;
        *known = of;
        usize::from((*index).min(of - 1))
    }

    /// Turns to the next walk, depth first; `false` when all were walked.
    pub(crate) fn advance(&mut self) -> bool {
        self.choices.truncate(self.depth);
        self.depth = 0;
        while let Some((index, of)) = self.choices.last_mut() {
            if *index + 1 < *of {
                *index += 1;
                return true;
            }
            self.choices.pop();
        }
        false
    }
}

/// How many actors keep a priority; beyond it all draw anew, so that memory stays bounded.
const PRIORITIES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64, policy: Policy) -> Vec<usize> {
        let mut seeded = Seeded::new(seed, Some(policy));
        let actors = [Actor::Host(0), Actor::Host(1), Actor::Device(7), Actor::Device(8)];
        (0..64).map(|_| seeded.choose(&actors)).collect()
    }

    #[test]
    fn the_same_seed_draws_the_same_and_another_does_not() {
        for policy in [Policy::Uniform, Policy::Priorities, Policy::LazyDevice, Policy::EagerDevice] {
            assert_eq!(draw(3, policy), draw(3, policy), "{policy:?} must replay");
            assert_ne!(draw(3, policy), draw(4, policy), "{policy:?} must depend on the seed");
        }
    }

    #[test]
    fn lazy_and_eager_lean_to_their_side() {
        let device = |policy| draw(9, policy).iter().filter(|index| **index >= 2).count();
        assert!(device(Policy::LazyDevice) < 16, "a lazy device moves seldom");
        assert!(device(Policy::EagerDevice) > 48, "an eager device moves often");
    }

    #[test]
    fn a_path_walks_every_order_once() {
        let mut path = Path::default();
        let mut seen = Vec::new();
        loop {
            let first = path.choose(2);
            let second = if first == 0 { path.choose(3) } else { 0 };
            seen.push((first, second, path.key()));
            if !path.advance() {
                break;
            }
        }
        let walks: Vec<_> = seen.iter().map(|(first, second, _)| (*first, *second)).collect();
        assert_eq!(walks, [(0, 0), (0, 1), (0, 2), (1, 0)]);
        assert_eq!(seen[1].2, "0.1");
        let mut replay = Path::parse("0.1").expect("a key parses");
        assert_eq!((replay.choose(2), replay.choose(3)), (0, 1));
        assert!(!replay.diverged());
    }

    #[test]
    fn a_program_that_differs_between_runs_is_noticed() {
        let mut path = Path::default();
        path.choose(2);
        path.choose(2);
        assert!(path.advance());
        path.choose(2);
        path.choose(3);
        assert!(path.diverged());
    }
}
