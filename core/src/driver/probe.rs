//! What of a range is registered, asked address by address.

use super::{Coverage, DeviceAddress, Driver, DriverError as _, ErrorKind, HostPointer};

/// Asks a driver that knows no better by its look-ups: of the first byte of each page, and of the last byte.
pub(super) fn probe<D: Driver>(driver: &D, base: HostPointer, bytes: usize) -> std::result::Result<Coverage, D::Error> {
    /// The least page of the systems that there are.
    const PAGE: usize = 4096;
    let to_next_page = PAGE - base.address() % PAGE;
    let pages = (0..).map(|page| to_next_page + page * PAGE).take_while(|offset| *offset < bytes - 1);
    let (mut any, mut all) = (false, true);
    let mut first = None;
    for offset in std::iter::once(0).chain(pages).chain((bytes > 1).then_some(bytes - 1)) {
        let at = base.offset(offset);
        let registered = match driver.host_is_registered(at) {
            Ok(registered) => registered,
            // Some drivers refuse to speak of memory that they do not know.
            Err(error) if error.kind() == ErrorKind::InvalidValue => false,
            Err(error) => return Err(error),
        };
        // One registration is one range for the device as well.
        let in_line = registered && {
            let device = driver.host_device_address(at)?;
            *first.get_or_insert(device) == DeviceAddress(device.0.wrapping_sub(offset as u64))
        };
        (any, all) = (any || registered, all && in_line);
        if any && !all {
            return Ok(Coverage::Part);
        }
    }
    Ok(if any { Coverage::Whole } else { Coverage::None })
}
