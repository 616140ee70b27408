//! Macros by which a function's mechanisms are listed: one line for each, and the function's
//! `none`.

/// Makes the registry of a function: the enum of its mechanisms (dispatched without indirection),
/// the list of their entries, the builder from a choice, and the place for mechanisms from outside
/// this crate. One line registers a mechanism.
///
/// `registry!(Slot: Trait, context: Context; Variant => module::Type, …)`; each type has `const
/// INFO: Mechanism` and `fn build(&Params, Context) -> Self`.
#[macro_export]
macro_rules! registry {
    ($(#[$meta:meta])* $slot:ident : $trait:ident, context: $ctx:ty; $($variant:ident => $module:ident :: $ty:ident),+ $(,)?) => {
        $(#[$meta])*
        #[::enum_dispatch::enum_dispatch($trait)]
        pub enum $slot {
            $(
                #[doc = concat!("See [`", stringify!($module), "`].")]
                $variant($module::$ty),
            )+
            /// A mechanism from outside this crate, made known by [`register`]. In two boxes, so
            /// that the enum is not larger for it.
            External(Box<Box<dyn $trait>>),
        }

        $(
            impl $crate::mechanism::Described for $module::$ty {
                fn info(&self) -> &'static $crate::mechanism::Mechanism {
                    &$module::$ty::INFO
                }
            }
        )+

        impl $crate::mechanism::Described for $slot {
            fn info(&self) -> &'static $crate::mechanism::Mechanism {
                $slot::info(self)
            }
        }

        /// The mechanisms of this function that this crate has, in the order of their numbers.
        pub static MECHANISMS: &[&$crate::mechanism::Mechanism] = &[$(&$module::$ty::INFO),+];

        /// Builds a mechanism of this function that is from outside this crate.
        pub type Builder = fn(&$crate::mechanism::Params, $ctx) -> Box<dyn $trait>;

        /// The mechanisms of this function that are from outside this crate.
        pub(crate) static EXTERNAL: $crate::external::Externals<Builder> = $crate::external::Externals::new();

        /// Makes a mechanism from outside this crate known to this process: from then on it can be
        /// asked for by name, and is offered to peers. Its number is one of the administrator's own
        /// ([`crate::external::NUMBERS`]).
        ///
        /// # Errors
        /// [`crate::external::NotRegistered`] if its entry cannot stand beside the others of this
        /// function.
        pub fn register(
            info: &'static $crate::mechanism::Mechanism,
            build: Builder,
        ) -> Result<(), $crate::external::NotRegistered> {
            EXTERNAL.register(MECHANISMS, info, build)
        }

        impl $slot {
            /// The entry of the mechanism in use.
            pub fn info(&self) -> &'static $crate::mechanism::Mechanism {
                match self {
                    $($slot::$variant(_) => &$module::$ty::INFO,)+
                    $slot::External(external) => $crate::mechanism::Described::info(external),
                }
            }

            /// Builds the chosen mechanism; `None` if this library has none of that number or its
            /// parameters are out of range.
            pub fn build(choice: &$crate::mechanism::Choice, context: $ctx) -> Option<Self> {
                $(
                    if choice.number == $module::$ty::INFO.number {
                        $module::$ty::INFO.check(&choice.params).ok()?;
                        return Some($slot::$variant($module::$ty::build(&choice.params, context)));
                    }
                )+
                let (info, build) = EXTERNAL.find(choice.number)?;
                info.check(&choice.params).ok()?;
                Some($slot::External(Box::new(build(&choice.params, context))))
            }
        }
    };
}

/// Makes the type of a function's `none`, which has no state: its entry in the library, and how it
/// is built.
///
/// `inert!(Fec, "no redundancy", context: ());` Fields of the entry that differ from
/// [`Mechanism::inert`](crate::Mechanism::inert) follow: `consent: Consent::OfBoth`.
macro_rules! inert {
    ($function:ident, $what:literal, context: $ctx:ty $(, $field:ident: $value:expr)* $(,)?) => {
        /// See the module's page.
        #[derive(Clone, Debug)]
        pub struct None;

        impl None {
            /// Its entry in the library.
            pub const INFO: $crate::Mechanism = $crate::Mechanism {
                $($field: $value,)*
                ..$crate::Mechanism::inert($crate::Function::$function, $what)
            };

            /// Builds it: there is nothing to build it from.
            pub fn build(_: &$crate::Params, _: $ctx) -> Self {
                None
            }
        }
    };
}
pub(crate) use inert;
