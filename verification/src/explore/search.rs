//! The search: every reachable state of a machine, breadth first, so that the first violation has a shortest path.
//!
//! States are told apart by an exact key, not by a hash of it. A key may leave out what no later step depends on (figures
//! that only add up) and may count numbers from a watermark: so runs without end fold into finitely many states. Whether a
//! key leaves out too much is itself checked ([`Limits::audit`]): two states with one key must have the same steps to the same keys.
//!
//! What is checked:
//!
//! | kind | how |
//! |---|---|
//! | a step does wrong | the machine says so while it makes the step |
//! | a state is wrong | [`Machine::check`], on every state |
//! | deadlock | a state without steps that is no place to rest |
//! | a promise is never kept, however fair the rest is | [`Machine::promises`], see [`fair_trap`] |
//!
//! # Why not a library
//! stateright 0.31 was considered. Its `eventually` ignores cycles (its documentation says so), knows no fairness, and "every
//! retired thing is released" is just such a property; and it takes two states with one 64-bit hash for the same state.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A line of the contract that does not hold, and in what way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The line's name.
    pub line: &'static str,
    /// What happened.
    pub how: &'static str,
}

/// Says that `line` is broken unless `holds`.
pub fn must(holds: bool, line: &'static str, how: &'static str) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { line, how }) }
}

/// What a step is called in a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label(pub &'static str, pub [u8; 2]);

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        self.1.iter().filter(|detail| **detail != NONE).try_for_each(|detail| write!(f, " {detail}"))
    }
}

/// No detail in a [`Label`].
pub const NONE: u8 = u8::MAX;

/// A fair actor. Below 32, weakly: if from some moment on it can always go on, it does. From 32 to 62, strongly: if it can go on
/// again and again, it does; that is what a lock owes to each waiter.
pub type Fair = u8;

/// Nobody: a step that may never be made.
pub const FREE: Fair = 63;

/// The steps that lead out of a state.
#[derive(Debug)]
pub struct Steps<S>(Vec<Step<S>>);

struct Step<S> {
    label: Label,
    fair: Fair,
    to: Result<S, Broken>,
}

impl<S> fmt::Debug for Step<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.label)
    }
}

impl<S: Clone> Steps<S> {
    /// A step from `state` that `act` makes, of a fair actor or a [`FREE`] one.
    pub fn add(&mut self, state: &S, label: Label, fair: Fair, act: impl FnOnce(&mut S) -> Result<(), Broken>) {
        let mut next = state.clone();
        let to = act(&mut next).map(|()| next);
        self.0.push(Step { label, fair, to });
    }
}

/// "Whatever is `open` is closed at some time", if everybody fair goes on.
pub struct Promise<S> {
    /// The line, and the sentence.
    pub broken: Broken,
    /// Whether it is owed only when [`FREE`] actors do nothing more.
    pub if_quiet: bool,
    /// Whether it is open in this state.
    pub open: Box<dyn Fn(&S) -> bool>,
}

/// A state machine in a world that does to it what it can.
pub trait Machine {
    /// A state of both.
    type State: Clone;
    /// What tells states apart.
    type Key: Eq + Hash + Ord;

    /// Where it can begin.
    fn starts(&self) -> Vec<Self::State>;
    /// What tells this state from others.
    fn key(&self, state: &Self::State) -> Self::Key;
    /// All steps that can be made now.
    fn steps(&self, state: &Self::State, steps: &mut Steps<Self::State>);
    /// What must hold in every state.
    fn check(&self, state: &Self::State) -> Result<(), Broken>;
    /// Whether it is all right that nothing more can happen here.
    fn may_rest(&self, state: &Self::State) -> bool;
    /// What must come about at some time.
    fn promises(&self) -> Vec<Promise<Self::State>>;
}

/// How far a search may go.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// More states than this count as a failure: a capped search proves nothing.
    pub states: usize,
    /// Of how many states that were met again to check that the key tells enough: every n-th; zero for none.
    pub audit: usize,
}

/// What a search found.
#[derive(Debug)]
pub struct Found {
    /// States.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// The longest of the shortest paths.
    pub depth: usize,
    /// Time.
    pub took: Duration,
    /// The first violation, with the path to it.
    pub violation: Option<Violation>,
}

/// A violation.
#[derive(Debug)]
pub struct Violation {
    /// What.
    pub broken: Broken,
    /// How to get there, step by step.
    pub path: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, after: {}", self.broken.line, self.broken.how, self.path.join("; "))
    }
}

/// The reached part of a machine.
struct Graph<'a, M: Machine> {
    machine: &'a M,
    states: Vec<M::State>,
    known: HashMap<M::Key, u32>,
    /// From where a state was reached first, and how.
    came: Vec<Option<(u32, Label)>>,
    depth: Vec<u32>,
    edges: Vec<Vec<(u32, Fair)>>,
    steps: usize,
}

/// Searches all that `machine` can reach.
pub fn search<M: Machine>(machine: &M, limits: Limits) -> Found {
    let began = Instant::now();
    let mut graph = Graph::new(machine);
    let violation = graph.grow(limits).and_then(|()| graph.keep_promises()).err();
    Found {
        states: graph.states.len(),
        steps: graph.steps,
        depth: graph.depth.iter().max().map_or(0, |depth| *depth as usize),
        took: began.elapsed(),
        violation,
    }
}

impl<'a, M: Machine> Graph<'a, M> {
    fn new(machine: &'a M) -> Self {
        Self {
            machine,
            states: Vec::new(),
            known: HashMap::new(),
            came: Vec::new(),
            depth: Vec::new(),
            edges: Vec::new(),
            steps: 0,
        }
    }

    fn grow(&mut self, limits: Limits) -> Result<(), Violation> {
        for start in self.machine.starts() {
            self.reach(start, None, limits)?;
        }
        let mut next = 0;
        while next < self.states.len() {
            self.expand(next, limits)?;
            next += 1;
        }
        Ok(())
    }

    fn expand(&mut self, from: usize, limits: Limits) -> Result<(), Violation> {
        let mut steps = Steps(Vec::new());
        self.machine.steps(&self.states[from], &mut steps);
        if steps.0.is_empty() && !self.machine.may_rest(&self.states[from]) {
            return Err(self.violation(DEADLOCK, from, None));
        }
        let mut edges = Vec::with_capacity(steps.0.len());
        for step in steps.0 {
            let to = step.to.map_err(|broken| self.violation(broken, from, Some(step.label)))?;
            self.steps += 1;
            edges.push((self.reach(to, Some((from, step.label)), limits)?, step.fair));
        }
        self.edges[from] = edges;
        Ok(())
    }

    /// Notes a state, checked when it is new.
    fn reach(&mut self, state: M::State, came: Option<(usize, Label)>, limits: Limits) -> Result<u32, Violation> {
        let key = self.machine.key(&state);
        if let Some(known) = self.known.get(&key).copied() {
            if limits.audit > 0 && self.steps.is_multiple_of(limits.audit) && !self.same_steps(known as usize, &state) {
                let (from, label) = came.expect("a start is met again only by a step");
                return Err(self.violation(KEY_TOO_SHORT, from, Some(label)));
            }
            return Ok(known);
        }
        let index = self.states.len();
        if index >= limits.states {
            return Err(self.violation(CAPPED, came.map_or(0, |(from, _)| from), None));
        }
        let number = u32::try_from(index).expect("fewer than 2^32 states");
        self.known.insert(key, number);
        self.depth.push(came.map_or(0, |(from, _)| self.depth[from] + 1));
        self.came.push(came.map(|(from, label)| (u32::try_from(from).expect("an index of ours"), label)));
        self.edges.push(Vec::new());
        let holds = self.machine.check(&state);
        self.states.push(state);
        holds.map_err(|broken| self.violation(broken, index, None))?;
        Ok(number)
    }

    /// Whether two states with one key go on in the same way.
    fn same_steps(&self, known: usize, other: &M::State) -> bool {
        let outlook = |state: &M::State| {
            let mut steps = Steps(Vec::new());
            self.machine.steps(state, &mut steps);
            let steps = steps.0.into_iter();
            let mut outlook: Vec<_> = steps
                .map(|step| (step.label, step.to.map(|to| self.machine.key(&to)).map_err(|broken| broken.line)))
                .collect();
            outlook.sort_unstable();
            outlook
        };
        outlook(&self.states[known]) == outlook(other)
    }

    fn keep_promises(&self) -> Result<(), Violation> {
        for promise in self.machine.promises() {
            let open: Vec<bool> = self.states.iter().map(|state| (promise.open)(state)).collect();
            let trap = if promise.if_quiet {
                let fair = |steps: &Vec<(u32, Fair)>| steps.iter().filter(|(_, fair)| *fair != FREE).copied().collect();
                fair_trap(&self.edges.iter().map(fair).collect::<Vec<_>>(), &open)
            } else {
                fair_trap(&self.edges, &open)
            };
            if let Some(state) = trap {
                return Err(self.violation(promise.broken, state, None));
            }
        }
        Ok(())
    }

    fn violation(&self, broken: Broken, at: usize, last: Option<Label>) -> Violation {
        let mut path: Vec<String> = last.iter().map(ToString::to_string).collect();
        let mut at = at;
        while let Some(Some((from, label))) = self.came.get(at) {
            path.push(label.to_string());
            at = *from as usize;
        }
        path.reverse();
        Violation { broken, path }
    }
}

const DEADLOCK: Broken = Broken { line: "deadlock", how: "nothing can happen, and somebody is not done" };
const CAPPED: Broken = Broken { line: "capped", how: "there are more states than the search may hold" };
const KEY_TOO_SHORT: Broken = Broken { line: "key", how: "two states with one key go on in different ways" };

/// A state from which a promise can stay open forever although everybody is fair.
///
/// Among the open states, take a strongly connected part, if only of one state: a run can stay in it forever, visiting all of
/// it, or doing nothing more, since no [`FREE`] actor has to. It is fair to a weakly fair actor that makes a step in it, or cannot in one of its
/// states; to a strongly fair one that makes a step in it, or cannot in any of its states. If it is fair to all it is a trap. If
/// it is unfair to a weakly fair actor, so is every smaller part. If only to a strongly fair one, a smaller part without the states
/// in which that can go on may be a trap: the search goes on there.
fn fair_trap(edges: &[Vec<(u32, Fair)>], open: &[bool]) -> Option<usize> {
    let mut open = open.to_vec();
    loop {
        let parts = components(edges, &open);
        let traps = traps(edges, &open, &parts);
        let fair_to_all = |trap: &&Trap| trap.is_fair() && trap.starves() == 0;
        if let Some(trap) = traps.iter().flatten().find(fair_to_all) {
            return Some(trap.first);
        }
        for (state, steps) in edges.iter().enumerate().filter(|(state, _)| parts[*state] != UNSEEN) {
            open[state] = traps[parts[state] as usize]
                .as_ref()
                .is_some_and(|trap| trap.is_fair() && trap.starves() & bits(steps.iter()) == 0);
        }
        if !open.contains(&true) {
            return None;
        }
    }
}

#[derive(Clone)]
struct Trap {
    first: usize,
    /// Who makes steps in it.
    does: u64,
    /// Who can go on in each of its states.
    always_can: u64,
    /// Who can go on in some of its states.
    ever_can: u64,
}

const STRONG: u64 = !0 << 32 & !(1 << FREE);

impl Trap {
    fn is_fair(&self) -> bool {
        self.always_can & !self.does & !(1 << FREE) == 0
    }

    fn starves(&self) -> u64 {
        self.ever_can & !self.does & STRONG
    }
}

fn traps(edges: &[Vec<(u32, Fair)>], open: &[bool], parts: &[u32]) -> Vec<Option<Trap>> {
    let mut traps: Vec<Option<Trap>> = vec![None; edges.len()];
    for (state, steps) in edges.iter().enumerate().filter(|(state, _)| open[*state]) {
        let part = parts[state];
        let new = Trap { first: state, does: 0, always_can: !0, ever_can: 0 };
        let trap = traps[part as usize].get_or_insert(new);
        let inside = |to: u32| open[to as usize] && parts[to as usize] == part;
        trap.does |= bits(steps.iter().filter(|(to, _)| inside(*to)));
        trap.always_can &= bits(steps.iter());
        trap.ever_can |= bits(steps.iter());
    }
    traps
}

fn bits<'a>(steps: impl Iterator<Item = &'a (u32, Fair)>) -> u64 {
    steps.fold(0, |all, (_, fair)| all | 1 << fair)
}

const UNSEEN: u32 = u32::MAX;

/// The strongly connected part of each open state, by Tarjan's algorithm with a stack of its own.
fn components(edges: &[Vec<(u32, Fair)>], open: &[bool]) -> Vec<u32> {
    let (mut part, mut low, mut order) = (vec![UNSEEN; edges.len()], vec![0; edges.len()], vec![UNSEEN; edges.len()]);
    let (mut parts, mut seen) = (0, 0);
    let (mut path, mut stack) = (Vec::new(), Vec::new());
    for root in (0..edges.len()).filter(|root| open[*root]) {
        if order[root] == UNSEEN {
            path.push((root, 0));
        }
        while let Some((at, next)) = path.pop() {
            if next == 0 {
                (order[at], low[at]) = (seen, seen);
                seen += 1;
                stack.push(at);
            }
            let onward = edges[at][next..].iter().position(|(to, _)| {
                let to = *to as usize;
                if open[to] && order[to] != UNSEEN && part[to] == UNSEEN {
                    low[at] = low[at].min(order[to]);
                }
                open[to] && order[to] == UNSEEN
            });
            if let Some(skipped) = onward {
                path.push((at, next + skipped + 1));
                path.push((edges[at][next + skipped].0 as usize, 0));
                continue;
            }
            if low[at] == order[at] {
                while let Some(member) = stack.pop() {
                    part[member] = parts;
                    if member == at {
                        break;
                    }
                }
                parts += 1;
            }
            if let Some((above, _)) = path.last() {
                low[*above] = low[*above].min(low[at]);
            }
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_a_trap_unless_somebody_fair_leaves_it() {
        let all = [true, true, false];
        let by_nobody = [vec![(1, FREE)], vec![(0, FREE)], vec![]];
        assert_eq!(fair_trap(&by_nobody, &all), Some(0), "nobody has to leave");
        let by_one = [vec![(1, FREE), (2, 0)], vec![(0, FREE), (2, 0)], vec![]];
        assert_eq!(fair_trap(&by_one, &all), None, "0 can leave forever, so it does");
        let at_times = [vec![(1, FREE), (2, 0)], vec![(0, FREE)], vec![]];
        assert_eq!(fair_trap(&at_times, &all), Some(0), "0 can leave only at times: weak fairness is not enough");
        let in_the_end = [vec![(1, FREE), (2, 32)], vec![(0, 1)], vec![]];
        assert_eq!(fair_trap(&in_the_end, &all), None, "32 can leave again and again, so it does");
        let avoidable = [vec![(1, FREE), (2, 32)], vec![(1, FREE)], vec![]];
        assert_eq!(fair_trap(&avoidable, &all), Some(1), "32 cannot leave where it ends");
        let goes_round = [vec![(1, 0), (2, 0)], vec![(0, 0)], vec![]];
        assert_eq!(fair_trap(&goes_round, &all), Some(0), "0 goes on, but round and round");
    }

    #[test]
    fn an_end_is_a_trap() {
        assert_eq!(fair_trap(&[vec![(1, 0)], vec![]], &[true, true]), Some(1), "nothing more happens");
        assert_eq!(fair_trap(&[vec![(1, 0)], vec![]], &[true, false]), None, "it was closed before the end");
    }

    #[test]
    fn nobody_free_has_to_go_on() {
        assert_eq!(
            fair_trap(&[vec![(1, FREE)], vec![]], &[true, false]),
            Some(0),
            "the step that closes it is never made"
        );
    }

    /// Counts to its end; beside it a flag that its key may leave out.
    struct Count {
        end: u8,
        key_has_flag: bool,
    }

    impl Machine for Count {
        type State = (u8, bool);
        type Key = (u8, bool);

        fn starts(&self) -> Vec<(u8, bool)> {
            vec![(0, false)]
        }
        fn key(&self, state: &(u8, bool)) -> (u8, bool) {
            (state.0, state.1 && self.key_has_flag)
        }
        fn steps(&self, state: &(u8, bool), steps: &mut Steps<(u8, bool)>) {
            if state.0 < self.end && !state.1 {
                for flag in [false, true] {
                    steps.add(state, Label("count", [flag.into(), NONE]), 0, |state| {
                        *state = (state.0 + 1, flag);
                        Ok(())
                    });
                }
            }
        }
        fn check(&self, state: &(u8, bool)) -> Result<(), Broken> {
            must(state.0 < 9, "O1", "counted too far")
        }
        fn may_rest(&self, state: &(u8, bool)) -> bool {
            state.0 < 5
        }
        fn promises(&self) -> Vec<Promise<(u8, bool)>> {
            vec![]
        }
    }

    fn line(end: u8, key_has_flag: bool, states: usize, audit: usize) -> Option<&'static str> {
        let found = search(&Count { end, key_has_flag }, Limits { states, audit });
        found.violation.map(|violation| violation.broken.line)
    }

    #[test]
    fn each_kind_of_violation_is_told() {
        assert_eq!(line(4, true, 100, 1), None, "it rests where it may");
        assert_eq!(line(5, true, 100, 1), Some("deadlock"), "it stops where it may not");
        assert_eq!(line(4, true, 3, 1), Some("capped"), "a search that was cut short proves nothing");
        assert_eq!(line(4, false, 100, 1), Some("key"), "the key leaves out what the next step depends on");
        let found = search(&Count { end: 9, key_has_flag: true }, Limits { states: 100, audit: 1 });
        assert_eq!(
            found.violation.map(|found| found.broken.line),
            Some("deadlock"),
            "the nearest violation comes first"
        );
    }

    #[test]
    fn parts_are_found_across_joins() {
        // 0 -> 1 -> 2 -> 0, 2 -> 3 <-> 4
        let edges = [vec![(1, 0)], vec![(2, 0)], vec![(0, 0), (3, 0)], vec![(4, 0)], vec![(3, 0)]];
        let parts = components(&edges, &[true; 5]);
        assert!(parts[0] == parts[1] && parts[1] == parts[2], "one loop");
        assert!(parts[3] == parts[4] && parts[3] != parts[0], "and another, that leads nowhere else");
    }
}
