//! O1: a driver call of one's own is a promise about what it touches.
use tenure::Stream;
use tenure::driver::Call;
use tenure::queue::Submit;
use tenure_sim::driver::Sim;

fn submit(stream: &Stream<Sim>) {
    let _ = stream.submit_raw((), Call::Launch, |_, _| Ok(()));
}

fn main() {}
