//! Every order, but for those that differ only in the order of steps that are apart (see `footprint`).
//!
//! The walk is depth first, with *sleep sets* (Godefroid): once an actor's step was walked from some point, it sleeps on
//! the other ways from there for as long as all that is done is apart from it, since such a way would come to what was
//! walked already. A walk that has only sleepers left is *cut off*. Every order is walked up to the exchange of
//! neighbours that are apart, so each outcome is met; what a step touches is known once it was walked.

use super::footprint::Footprint;
use super::schedule::Actor;
use smallvec::SmallVec;

/// An actor with what its next step touches.
type Sleeper = (Actor, Footprint);

/// Whether two steps may change places.
pub(crate) type Apart = fn(&Footprint, &Footprint) -> bool;

/// A search, and its present walk.
#[derive(Debug)]
pub(crate) struct Reduced {
    nodes: Vec<Node>,
    depth: usize,
    sleepers: SmallVec<[Sleeper; 8]>,
    last: Option<Last>,
    is_apart: Apart,
}

/// A place where several could move.
#[derive(Debug)]
struct Node {
    index: u16,
    actors: SmallVec<[Actor; 8]>,
    /// Which of them slept when this was first met, by index.
    asleep: SmallVec<[bool; 8]>,
    /// Those walked from here, with what their step touched.
    walked: SmallVec<[Sleeper; 4]>,
    /// What the step that goes on from here touches.
    step: Footprint,
}

/// The step that is under way.
#[derive(Debug)]
struct Last {
    actor: Actor,
    node: Option<usize>,
}

impl Reduced {
    /// Before the first walk. With an `is_apart` that is never true all orders are walked.
    pub(crate) fn new(is_apart: Apart) -> Self {
        Self { nodes: Vec::new(), depth: 0, sleepers: SmallVec::new(), last: None, is_apart }
    }

    /// The index of the actor that moves; `done` is what was touched since the last choice. `None`: the walk is cut off.
    pub(crate) fn choose(&mut self, actors: &[Actor], done: Footprint) -> Option<usize> {
        self.finish(done);
        if let [only] = actors {
            return (!self.sleeps(only)).then(|| self.go(*only, None, 0));
        }
        let depth = self.depth;
        if depth == self.nodes.len() {
            let asleep: SmallVec<[bool; 8]> = actors.iter().map(|actor| self.sleeps(actor)).collect();
            let index = asleep.iter().position(|asleep| !asleep)?;
            let actors = SmallVec::from_slice(actors);
            let walked = SmallVec::new();
            self.nodes.push(Node { index: index as u16, actors, asleep, walked, step: Footprint::ALL });
        }
        self.depth += 1;
        let node = &self.nodes[depth];
        self.sleepers.extend_from_slice(&node.walked);
        let index = usize::from(node.index).min(actors.len().saturating_sub(1));
        Some(self.go(actors[index], Some(depth), index))
    }

    /// A thread moves that was not chosen: all wake up.
    pub(crate) fn forced(&mut self, done: Footprint) {
        self.finish(done);
        self.sleepers.clear();
    }

    fn sleeps(&self, actor: &Actor) -> bool {
        self.sleepers.iter().any(|(sleeper, _)| sleeper == actor)
    }

    fn go(&mut self, actor: Actor, node: Option<usize>, index: usize) -> usize {
        self.last = Some(Last { actor, node });
        index
    }

    /// The step under way has touched `done`: whoever is not apart from it wakes up.
    fn finish(&mut self, done: Footprint) {
        let Some(Last { actor, node }) = self.last.take() else { return };
        let done = if matches!(actor, Actor::Host(_)) { done.of_host() } else { done };
        if let Some(node) = node {
            self.nodes[node].step = done;
        }
        let is_apart = self.is_apart;
        self.sleepers.retain(|(sleeper, step)| *sleeper != actor && is_apart(step, &done));
    }

    /// The choices of the walk.
    pub(crate) fn taken(&self) -> Vec<u16> {
        self.nodes.iter().take(self.depth).map(|node| node.index).collect()
    }

    /// Turns to the next walk; `false` when all were walked.
    pub(crate) fn advance(&mut self) -> bool {
        self.nodes.truncate(self.depth);
        (self.depth, self.last) = (0, None);
        self.sleepers.clear();
        while let Some(node) = self.nodes.last_mut() {
            let actor = node.actors[usize::from(node.index)];
            node.walked.push((actor, node.step));
            let after = usize::from(node.index) + 1;
            if let Some(next) = (after..node.actors.len()).find(|index| !node.asleep[*index]) {
                node.index = next as u16;
                node.step = Footprint::ALL;
                return true;
            }
            self.nodes.pop();
        }
        false
    }
}
