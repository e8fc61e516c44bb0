//! Graphs: recorded work, made ready and launched as one operation.
//!
//! A launch runs its nodes in any order that the edges allow; [`Engine::ready`] lists those that may come next, so that
//! a missing edge inside a graph shows as any other race. Launches of one executable run one after the other, on
//! whatever streams. What is launched keeps its content: an update or a destroy concerns later launches only.
//!
//! Memory that a graph allocates lies at the same address at every launch. A launch while that of an earlier one was
//! not freed is refused with 1.

use std::sync::Arc;

use tenure::driver::{Call, GraphDescription};

use super::capture::CapturedNode;
use super::stream::{Head, Position, Work};
use super::{Answer, EXECUTABLES, Engine, GRAPHS, Step};
use crate::code::Code;
use crate::event::{
    Event, ExecutableHandle, ExecutableId, GraphHandle, GraphId, GraphShape, HostThread, OpId, ShapeNode, StreamHandle,
    WorkKind,
};
use crate::fault::Fate;
use crate::memory::{Named, Origin};

#[derive(Debug)]
pub(super) struct Node {
    pub(super) work: Work,
    pub(super) after: Vec<u32>,
}

/// What a graph does. Shared by the graph, its executables and their launches, and released with the last.
#[derive(Debug)]
pub(super) struct GraphData {
    pub(super) nodes: Vec<Node>,
    pub(super) successors: Vec<Vec<u32>>,
    shape: Arc<GraphShape>,
    /// Memory that its nodes allocate.
    slots: Vec<u32>,
    /// How many host ranges had gone back to the system when it was recorded.
    recorded: u64,
}

#[derive(Debug)]
pub(super) struct Graph {
    id: GraphId,
    data: Arc<GraphData>,
}

#[derive(Debug)]
pub(super) struct Executable {
    id: ExecutableId,
    data: Arc<GraphData>,
    last_launch: Option<Position>,
}

/// A launch in a stream's queue.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    key: u32,
    pub(super) executable: ExecutableId,
    pub(super) data: Arc<GraphData>,
    /// The operation of node 0; given at the submission.
    pub(super) first: OpId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    Waiting,
    Running,
    InFunction,
    Done,
    Hung,
}

/// A launch at the head of its stream.
#[derive(Debug)]
pub(super) struct GraphRun {
    data: Arc<GraphData>,
    first: OpId,
    states: Vec<NodeState>,
    earlier: Vec<u32>,
    left: u32,
}

impl GraphRun {
    /// Tells of each node that may start or finish, until `found` says stop.
    pub(super) fn ready(&self, may_begin_function: bool, found: &mut impl FnMut(u32, bool, OpId, WorkKind) -> bool) {
        for (index, state) in self.states.iter().enumerate() {
            let is_running = *state == NodeState::Running;
            if !is_running && !self.may_start(index, may_begin_function) {
                continue;
            }
            if !found(index as u32, is_running, self.op(index as u32), self.data.nodes[index].work.kind()) {
                return;
            }
        }
    }

    fn may_start(&self, index: usize, may_begin_function: bool) -> bool {
        self.states.get(index) == Some(&NodeState::Waiting)
            && self.earlier[index] == 0
            && (may_begin_function || !matches!(self.data.nodes[index].work, Work::HostFunction(_)))
    }

    fn op(&self, node: u32) -> OpId {
        OpId(self.first.0 + u64::from(node))
    }
}

impl Graph {
    /// A graph of what a capture recorded: nodes that only order are replaced by the edges that they stand for.
    pub(super) fn from_capture(id: GraphId, captured: Vec<CapturedNode>, slots: Vec<u32>, recorded: u64) -> Self {
        // For each captured node: what a node after it is after, as numbers of the graph's nodes.
        let mut stands_for: Vec<Vec<u32>> = Vec::with_capacity(captured.len());
        let mut nodes: Vec<Node> = Vec::new();
        for CapturedNode { work, after } in captured {
            let mut earlier: Vec<u32> =
                after.iter().flat_map(|node| stands_for[*node as usize].iter().copied()).collect();
            earlier.sort_unstable();
            earlier.dedup();
            match work {
                None => stands_for.push(earlier),
                Some(work) => {
                    stands_for.push(vec![nodes.len() as u32]);
                    nodes.push(Node { work, after: earlier });
                }
            }
        }
        Self { id, data: Arc::new(GraphData::new(nodes, slots, recorded)) }
    }
}

impl GraphData {
    fn new(nodes: Vec<Node>, slots: Vec<u32>, recorded: u64) -> Self {
        let mut successors = vec![Vec::new(); nodes.len()];
        for (index, node) in nodes.iter().enumerate() {
            for earlier in &node.after {
                successors[*earlier as usize].push(index as u32);
            }
        }
        let shape = nodes.iter().map(|node| ShapeNode { work: node.work.kind(), after: node.after.clone() });
        let shape = Arc::new(GraphShape { nodes: shape.collect() });
        Self { nodes, successors, shape, slots, recorded }
    }

    /// Whether an executable of `self` can be updated to do what `other` does.
    fn same_shape(&self, other: &Self) -> bool {
        let alike = |a: &Node, b: &Node| a.after == b.after && same_sort(&a.work, &b.work);
        self.nodes.len() == other.nodes.len() && self.nodes.iter().zip(&other.nodes).all(|(a, b)| alike(a, b))
    }
}

/// Memory nodes cannot be updated, nor can a kernel become another kernel's neighbour: kinds must be equal.
fn same_sort(a: &Work, b: &Work) -> bool {
    match (a, b) {
        (Work::Allocate { slot: a, .. }, Work::Allocate { slot: b, .. }) => a == b,
        (Work::Free { slot: a, .. }, Work::Free { slot: b, .. }) => a == b,
        _ => std::mem::discriminant(a) == std::mem::discriminant(b),
    }
}

impl Engine {
    /// Makes a graph ready to launch. Guarded, as its end is: measured, though no page says so.
    ///
    /// # Errors
    /// A stale handle; 900 where a capture forbids it.
    pub fn graph_instantiate(&mut self, thread: HostThread, graph: GraphHandle) -> Result<ExecutableHandle, Code> {
        self.plain(thread, Call::GraphInstantiate, |engine| {
            engine.guard()?;
            let key = engine.resolve_graph(graph)?;
            if engine.gives_null() {
                return Ok(ExecutableHandle(0));
            }
            let Graph { id: graph, data } = &engine.graphs[key];
            let (graph, data) = (*graph, Arc::clone(data));
            let id = engine.fresh_executable();
            let key = engine.executables.insert(Executable { id, data, last_launch: None });
            engine.push(Event::GraphInstantiated { graph, executable: id });
            Ok(ExecutableHandle(engine.handle(EXECUTABLES, key)))
        })
    }

    /// Replaces what later launches do.
    ///
    /// # Errors
    /// Stale handles; 910 where nodes or edges differ, or memory nodes do.
    pub fn graph_update(
        &mut self,
        thread: HostThread,
        executable: ExecutableHandle,
        graph: GraphHandle,
    ) -> Result<(), Code> {
        self.plain(thread, Call::GraphUpdate, |engine| {
            let key = engine.resolve_executable(executable)?;
            let graph = engine.resolve_graph(graph)?;
            let Graph { id, data } = &engine.graphs[graph];
            let (graph, data) = (*id, Arc::clone(data));
            let held = &mut engine.executables[key as usize];
            if !held.data.same_shape(&data) {
                return Err(Code::GRAPH_UPDATE_REFUSED);
            }
            let before = std::mem::replace(&mut held.data, data);
            let executable = held.id;
            engine.push(Event::GraphUpdated { executable, graph });
            engine.release_graph_data(before);
            Ok(())
        })
    }

    /// Runs the graph as one operation of the stream, or copies its nodes into the stream's capture.
    ///
    /// # Errors
    /// Stale handles; 1 where memory of an earlier launch was not freed; what a submission may return.
    pub fn graph_launch(
        &mut self,
        thread: HostThread,
        executable: ExecutableHandle,
        stream: StreamHandle,
    ) -> Result<Answer<()>, Code> {
        self.waiting(thread, Call::GraphLaunch, |engine| {
            let stream = engine.resolve(stream)?;
            let key = engine.resolve_executable(executable)?;
            let held = &engine.executables[key as usize];
            let (id, data) = (held.id, Arc::clone(&held.data));
            engine.check_code_of_graph(&data.nodes);
            if engine.streams[stream as usize].capture.is_none() {
                engine.name_graph_memory(&data)?;
            }
            engine.submit(stream, Work::Graph(Box::new(Launch { key, executable: id, data, first: OpId(0) })))
        })
    }

    /// Memory that a launch allocates has its name from the call on; what the launch also frees loses it at once.
    fn name_graph_memory(&mut self, data: &GraphData) -> Result<(), Code> {
        if data.slots.iter().any(|slot| self.memory.is_named(*slot)) {
            return Err(self.refuse(Code::INVALID_VALUE));
        }
        let frees =
            |slot: u32| data.nodes.iter().any(|node| matches!(node.work, Work::Free { slot: s, .. } if s == slot));
        for node in &data.nodes {
            let Work::Allocate { slot, allocation, bytes } = node.work else { continue };
            if !frees(slot) {
                self.memory.rename(slot, Named { allocation, bytes, origin: Origin::Graph });
            }
        }
        Ok(())
    }

    /// The nodes and edges of a graph.
    ///
    /// # Errors
    /// A stale handle.
    pub fn graph_describe(&mut self, thread: HostThread, graph: GraphHandle) -> Result<GraphDescription, Code> {
        self.plain(thread, Call::GraphDescribe, |engine| {
            let key = engine.resolve_graph(graph)?;
            let nodes = &engine.graphs[key].data.nodes;
            let edges = nodes.iter().enumerate();
            let edges = edges.flat_map(|(to, node)| node.after.iter().map(move |from| (*from as usize, to)));
            Ok(GraphDescription {
                edges: edges.collect(),
                nodes: nodes.iter().map(|node| node.work.kind().word().to_owned()).collect(),
            })
        })
    }

    /// Gives a graph back. Its executables stay.
    ///
    /// # Errors
    /// A stale handle.
    pub fn graph_destroy(&mut self, thread: HostThread, graph: GraphHandle) -> Result<(), Code> {
        self.plain(thread, Call::GraphDestroy, |engine| {
            let key = engine.resolve_graph(graph)?;
            let Graph { id, data } = engine.graphs.remove(key);
            engine.push(Event::GraphDestroyed { graph: id });
            engine.release_graph_data(data);
            Ok(())
        })
    }

    /// Gives an executable back. What was launched still runs. Guarded.
    ///
    /// # Errors
    /// A stale handle; 900 where a capture forbids it.
    pub fn executable_destroy(&mut self, thread: HostThread, executable: ExecutableHandle) -> Result<(), Code> {
        self.plain(thread, Call::ExecutableDestroy, |engine| {
            engine.guard()?;
            let key = engine.resolve_executable(executable)?;
            let Executable { id, data, last_launch } = engine.executables.remove(key as usize);
            let pending = last_launch.is_some_and(|position| !engine.is_complete(&position));
            engine.push(Event::ExecutableDestroyed { executable: id, pending });
            engine.release_graph_data(data);
            Ok(())
        })
    }

    fn resolve_graph(&mut self, graph: GraphHandle) -> Result<usize, Code> {
        match self.handle_key(GRAPHS, graph.0) {
            Some(key) if self.graphs.contains(key) => Ok(key),
            _ => Err(self.stale(graph.0)),
        }
    }

    fn resolve_executable(&mut self, executable: ExecutableHandle) -> Result<u32, Code> {
        match self.handle_key(EXECUTABLES, executable.0) {
            Some(key) if self.executables.contains(key) => Ok(key as u32),
            _ => Err(self.stale(executable.0)),
        }
    }

    // --- memory of graphs

    pub(super) fn release_graph_data(&mut self, data: Arc<GraphData>) {
        if let Some(data) = Arc::into_inner(data) {
            data.slots.into_iter().for_each(|slot| self.give_up_graph_slot(slot));
        }
    }

    /// No graph has the slot any more. What a launch allocated there and nobody freed stays until it is freed.
    pub(super) fn give_up_graph_slot(&mut self, slot: u32) {
        self.memory.keep_for_graph(slot, false);
        if !self.memory.is_live(slot) {
            self.memory.unname(slot);
            self.memory.hand_back(slot);
        }
    }

    // --- launches

    /// Another launch of the same executable comes first, also where it has completed: that is order all the same.
    pub(super) fn replay_order(&mut self, launch: &Launch) -> Option<Position> {
        let held = self.executables.get(launch.key as usize).filter(|held| held.id == launch.executable)?;
        held.last_launch
    }

    pub(super) fn note_launch(&mut self, position: Position, launch: &Launch) {
        let Launch { key, executable, ref data, first } = *launch;
        let shape = Arc::clone(&data.shape);
        if let Some(held) = self.executables.get_mut(key as usize).filter(|held| held.id == executable) {
            held.last_launch = Some(position);
        }
        for node in &data.nodes {
            if let Work::Record { key, event, .. } = node.work {
                self.move_mark(key, event, position);
                self.push(Event::Recorded { event, op: position.op });
            }
        }
        self.push(Event::GraphLaunched { executable, op: position.op, first_node: first, shape });
    }

    pub(super) fn start_graph(&mut self, stream: u32) {
        let held = &mut self.streams[stream as usize];
        let Some(Work::Graph(launch)) = held.queue.front().map(|queued| &queued.work) else { return };
        let data = Arc::clone(&launch.data);
        let count = data.nodes.len();
        if count == 0 {
            self.complete_head(stream);
            return;
        }
        let earlier = data.nodes.iter().map(|node| node.after.len() as u32).collect();
        let (first, states) = (launch.first, vec![NodeState::Waiting; count]);
        held.head = Head::Graph(Box::new(GraphRun { data, first, states, earlier, left: count as u32 }));
    }

    fn run_on(&mut self, stream: u32) -> Option<&mut GraphRun> {
        match &mut self.streams.get_mut(stream as usize)?.head {
            Head::Graph(run) => Some(run),
            _ => None,
        }
    }

    pub(super) fn start_node(&mut self, stream: u32, node: u32) -> Step {
        let may_begin_function = self.may_begin_function();
        let index = node as usize;
        let Some(run) = self.run_on(stream).filter(|run| run.may_start(index, may_begin_function)) else {
            return Step::NotReady;
        };
        let op = run.op(node);
        let function = match &run.data.nodes[index].work {
            Work::HostFunction(function) => Some(Arc::clone(function)),
            _ => None,
        };
        let id = self.streams[stream as usize].id;
        self.push(Event::Started { op, stream: id });
        match self.fate(function.is_some()) {
            Fate::Runs => {}
            Fate::Skipped => {
                self.complete_node(stream, node);
                return Step::Done;
            }
            Fate::Hangs => {
                self.set_node(stream, node, NodeState::Hung);
                return Step::Done;
            }
            Fate::LosesDevice(code) => {
                self.lose_device(code);
                return Step::Done;
            }
        }
        if let Some(function) = function {
            self.set_node(stream, node, NodeState::InFunction);
            return Step::Function(self.begin_function(op, stream, Some(node), function));
        }
        self.set_node(stream, node, NodeState::Running);
        if self.settings.whole_steps { self.finish_node(stream, node) } else { Step::Done }
    }

    fn set_node(&mut self, stream: u32, node: u32, state: NodeState) {
        if let Some(run) = self.run_on(stream) {
            run.states[node as usize] = state;
        }
    }

    pub(super) fn finish_node(&mut self, stream: u32, node: u32) -> Step {
        let is_running = |run: &&mut GraphRun| run.states.get(node as usize) == Some(&NodeState::Running);
        let Some(run) = self.run_on(stream).filter(is_running) else { return Step::NotReady };
        let (op, data) = (run.op(node), Arc::clone(&run.data));
        self.named_at = Some(data.recorded);
        let done = self.execute(op, stream, &data.nodes[node as usize].work);
        self.named_at = None;
        // The last node's end releases the content if nobody else has it: not while it is held here.
        drop(data);
        if done.is_ok() {
            self.complete_node(stream, node);
        }
        Step::Done
    }

    pub(super) fn complete_node(&mut self, stream: u32, node: u32) {
        let Some(run) = self.run_on(stream) else { return };
        let op = run.op(node);
        run.states[node as usize] = NodeState::Done;
        for later in &run.data.successors[node as usize] {
            run.earlier[*later as usize] -= 1;
        }
        run.left -= 1;
        let is_last = run.left == 0;
        let id = self.streams[stream as usize].id;
        self.push(Event::Completed { op, stream: id });
        if is_last {
            // The run holds the graph's content too: it goes before the launch does.
            self.streams[stream as usize].head = Head::Running;
            self.complete_head(stream);
        }
    }
}
