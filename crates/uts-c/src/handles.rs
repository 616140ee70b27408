//! The table of handles.
//!
//! Of a handle, C holds an address that is a key: the number of a place, and how often that has
//! been given away. It is never followed, so a handle that is wrong, or was closed, is found out,
//! and a second close is an error and no more.

use crate::border::{border, border_or};
use crate::code::{Failure, Result, uts_code};
use crate::context::Context;
use crate::queue::Posts;
use crate::waiting::Parker;
use core::any::Any;
use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Bits of a key that say which place: half of them, those of the place's turn above.
const PLACE_BITS: u32 = usize::BITS / 2;
const PLACES_MAX: usize = (1 << PLACE_BITS) - 1;

static TABLE: RwLock<Table> = RwLock::new(Table { places: Vec::new(), free: Vec::new() });

struct Table {
    places: Vec<Place>,
    free: Vec<usize>,
}

struct Place {
    turn: usize,
    held: Option<Held>,
}

#[derive(Clone)]
struct Held {
    common: Arc<Common>,
    object: Arc<dyn Any + Send + Sync>,
}

/// A kind of thing that C holds by a handle.
pub(crate) trait Object: Any + Send + Sync {
    /// Its name, behind "a" or "an".
    const NAME: &'static str;

    /// Ends it: its handle was closed. Who is in a call with it has it a little longer.
    fn on_closed(&self) {}
}

/// Part that all handles have.
pub(crate) struct Common {
    /// Key; 0 = not in the table yet.
    key: AtomicUsize,
    name: &'static str,
    on_closed: fn(&(dyn Any + Send + Sync)),
    /// Value that the program keeps with the handle.
    user: AtomicUsize,
    is_closed: AtomicBool,
    /// Threads that wait in a call.
    parked: Mutex<Vec<Arc<Parker>>>,
    /// Context to which it belongs; `None` = none, or it is one itself.
    pub context: Option<Arc<Context>>,
    pub posts: Posts,
}

impl Common {
    /// For a thing of kind `T`.
    pub fn of<T: Object>(context: Option<Arc<Context>>) -> Arc<Self> {
        Arc::new(Common {
            key: AtomicUsize::new(0),
            name: T::NAME,
            on_closed: |object| {
                if let Some(object) = object.downcast_ref::<T>() {
                    object.on_closed();
                }
            },
            user: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            parked: Mutex::default(),
            context,
            posts: Posts::default(),
        })
    }

    /// Key of the handle.
    pub fn key(&self) -> usize {
        self.key.load(Ordering::Acquire)
    }

    /// Value that the program keeps with the handle.
    pub fn user(&self) -> usize {
        self.user.load(Ordering::Acquire)
    }

    /// Says whether the handle was closed.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// A thread waits, until [`Common::unpark`]; it is woken when the handle is closed.
    pub fn park(&self, parker: &Arc<Parker>) {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner).push(parker.clone());
    }

    /// The thread waits no longer.
    pub fn unpark(&self, parker: &Arc<Parker>) {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|other| !Arc::ptr_eq(other, parker));
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        for parker in self.parked.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            parker.unpark();
        }
        if let Some(context) = &self.context {
            context.forget(self.key());
        }
    }
}

impl Table {
    fn at(&self, key: usize) -> Option<&Held> {
        let place = self.places.get((key & PLACES_MAX).checked_sub(1)?)?;
        place.held.as_ref().filter(|_| place.turn == key >> PLACE_BITS)
    }

    fn put(&mut self, held: Held) -> Result<usize> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.places.len() < PLACES_MAX => {
                self.places.push(Place { turn: 1, held: None });
                self.places.len() - 1
            }
            None => return Err(Failure::new(uts_code::UTS_ESYSTEM, "there are too many handles")),
        };
        let place = &mut self.places[at];
        let key = place.turn << PLACE_BITS | (at + 1);
        held.common.key.store(key, Ordering::Release);
        place.held = Some(held);
        Ok(key)
    }

    fn take(&mut self, key: usize) -> Option<Held> {
        self.at(key)?;
        let at = (key & PLACES_MAX) - 1;
        let place = &mut self.places[at];
        // A place whose turns are used up is given away no more.
        if place.turn < usize::MAX >> PLACE_BITS {
            place.turn += 1;
            self.free.push(at);
        }
        place.held.take()
    }
}

/// Makes a thing known. Returns its handle, of any type.
pub(crate) fn give<T: Object, H>(common: Arc<Common>, object: Arc<T>) -> Result<*mut H> {
    let context = common.context.clone();
    let held = Held { common, object };
    let key = TABLE.write().unwrap_or_else(PoisonError::into_inner).put(held)?;
    if let Some(context) = context
        && !context.remember(key)
    {
        close(key);
        return Err(Failure::new(uts_code::UTS_EHANDLE, "the context was closed meanwhile"));
    }
    Ok(ptr::without_provenance_mut(key))
}

/// Thing of kind `T` that C holds by this handle, and what all handles have.
pub(crate) fn find<T: Object>(handle: *const c_void) -> Result<(Arc<Common>, Arc<T>)> {
    let held = any(handle)?;
    match Arc::downcast(held.object) {
        Ok(object) => Ok((held.common, object)),
        Err(_) => Err(wrong_kind(held.common.name, T::NAME)),
    }
}

/// The same where a handle may be of another kind as well.
pub(crate) fn find_if<T: Object>(handle: *const c_void) -> Result<Option<(Arc<Common>, Arc<T>)>> {
    let held = any(handle)?;
    Ok(Arc::downcast(held.object).ok().map(|object| (held.common, object)))
}

/// Error for a handle of a kind that a function does not take.
pub(crate) fn wrong_kind(name: &str, wanted: &str) -> Failure {
    Failure::new(uts_code::UTS_EHANDLE, format_args!("the handle is that of a {name}, not of a {wanted}"))
}

/// Name of a handle's kind.
pub(crate) fn kind(handle: *const c_void) -> Result<&'static str> {
    Ok(any(handle)?.common.name)
}

fn any(handle: *const c_void) -> Result<Held> {
    if handle.is_null() {
        return Err(Failure::new(uts_code::UTS_EHANDLE, "the handle is NULL"));
    }
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.at(handle.addr()).cloned().ok_or_else(unknown)
}

fn unknown() -> Failure {
    Failure::new(uts_code::UTS_EHANDLE, "there is no such handle: it was closed, or is none")
}

/// Closes the handle of this key; says whether there was one.
pub(crate) fn close(key: usize) -> bool {
    // Dropped without the lock: it may close others.
    let taken = TABLE.write().unwrap_or_else(PoisonError::into_inner).take(key);
    let Some(held) = taken else { return false };
    held.common.close();
    (held.common.on_closed)(&*held.object);
    true
}

/// Number of handles that are open in this process: for tests.
#[doc(hidden)]
pub fn open_handles() -> usize {
    let table = TABLE.read().unwrap_or_else(PoisonError::into_inner);
    table.places.iter().filter(|place| place.held.is_some()).count()
}

/// Closes a handle of any kind. Calls of other threads that wait with it return UTS_EHANDLE.
///
/// A context takes its handles with it: connections are closed with code 0, and their peers are
/// told. A listener accepts no more. A connection is closed with code 0; to say why, call
/// uts_shutdown before. A flow that was not finished is reset behind what was written. Of options,
/// a copy was taken by whoever was given them.
///
/// Returns UTS_EHANDLE for NULL, and for what is no handle or no longer one. Nothing else happens
/// then.
#[unsafe(no_mangle)]
pub extern "C" fn uts_close(handle: *mut c_void) -> c_int {
    border(|| {
        if handle.is_null() {
            return Err(Failure::new(uts_code::UTS_EHANDLE, "the handle is NULL"));
        }
        if close(handle.addr()) { Ok(()) } else { Err(unknown()) }
    })
}

/// Keeps a value of the program's with a handle. It comes with each of its entries.
#[unsafe(no_mangle)]
pub extern "C" fn uts_set_user(handle: *mut c_void, user: *mut c_void) -> c_int {
    border(|| {
        any(handle)?.common.user.store(user.expose_provenance(), Ordering::Release);
        Ok(())
    })
}

/// Value that uts_set_user has kept with a handle; NULL if none was, or in case of an error.
#[unsafe(no_mangle)]
pub extern "C" fn uts_user(handle: *const c_void) -> *mut c_void {
    border_or(ptr::null_mut(), || Ok(ptr::with_exposed_provenance_mut(any(handle)?.common.user())))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Apple;
    struct Pear;
    impl Object for Apple {
        const NAME: &'static str = "apple";
    }
    impl Object for Pear {
        const NAME: &'static str = "pear";
    }

    fn code<T>(result: Result<T>) -> Option<(uts_code, String)> {
        result.err().map(|failure| (failure.code, failure.text))
    }

    #[test]
    fn a_wrong_handle_is_an_error_that_says_what_is_wrong() {
        let apple: *mut c_void = give(Common::of::<Apple>(None), Arc::new(Apple)).expect("room");
        assert!(find::<Apple>(apple).is_ok());
        let (wrong, said) = code(find::<Pear>(apple)).expect("another kind");
        assert_eq!(
            (wrong, said.as_str()),
            (uts_code::UTS_EHANDLE, "the handle is that of a apple, not of a pear")
        );
        assert_eq!((uts_close(apple), uts_close(apple)), (0, uts_code::UTS_EHANDLE as c_int));
        assert!(find::<Apple>(apple).is_err());
        let next: *mut c_void = give(Common::of::<Pear>(None), Arc::new(Pear)).expect("room");
        assert_ne!(next, apple, "a key is not given away twice");
        assert_eq!(uts_close(next), 0);
        for wrong in [0, 1, usize::MAX, 1 << PLACE_BITS, (1 << PLACE_BITS) | 1, &raw const apple as usize] {
            assert!(find::<Apple>(ptr::without_provenance(wrong)).is_err(), "{wrong:x}");
        }
    }
}
